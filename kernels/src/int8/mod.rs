//! Rows in rotated int8, operands of 8-bit GEMMs, whose sums are exact.
//!
//! A quantized matrix `[rows, k]` is `q`, i8 `[rows, k]`, and `scale`, f32 `[rows]`. Its rows are rotated first, which
//! spreads outliers over the columns: blocks of r columns, the largest power of two up to 128 that divides k, are
//! multiplied by the orthonormal Hadamard matrix `H_r / sqrt(r)` in Sylvester's order. With both matrices rotated, the
//! GEMM gives the same:
//! `x w^T = (x H) (w H)^T`.
//!
//! | op | result | reads |
//! | --- | --- | --- |
//! | `int8.quantize` | `q = round(x H / scale)`, `scale = max abs (x H) / 127` of a row | x rows x k, dtype x |
//! | `int8.columns` | the same of the columns of x: `q` is i8 `[columns, n]`, with n as k | x n x columns, dtype x |
//!
//! Other kernels also write such rows, if their key has `out=bf16+i8`, which adds `int8.quantize` of the rows in bf16,
//! or `out=i8` ([`crate::Out`]); `gemm.fwd` and `gemm.swiglu` read them if theirs has `x=i8`.
//!
//! Each step is f32, rounded separately, so that both ops give the host's bits. Rows of zeros (all below 2^-100) have
//! scale 0 and values 0; rows with non-finite values have a scale of NaN.
//!
//! Sources: Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", 2024 (arXiv 2404.00456); Liu et
//! al., "SpinQuant", 2024 (arXiv 2405.16406).

mod columns;
mod host;
mod quantize;
mod rotation;
mod rows;

pub use columns::Int8Columns;
pub(crate) use host::RowStore;
pub use quantize::Int8Quantize;
pub use rotation::{MOST_DEPTH, rotation};
pub(crate) use rows::{RotatedRows, int8_source, neighbors, rows};
