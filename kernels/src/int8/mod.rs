//! Rows in rotated int8, operands of 8-bit GEMMs, whose sums are exact.
//!
//! A quantized matrix `[rows, k]` is `q`, i8 `[rows, k]`, and `scale`, f32 `[rows]`. Its rows are rotated first, which spreads
//! outliers over the columns: blocks of r columns, the largest power of two up to 128 that divides k, are multiplied by the
//! orthonormal Hadamard matrix `H_r / sqrt(r)` in Sylvester's order. With both matrices rotated, the GEMM gives the same:
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
//! Sources: Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", 2024 (arXiv 2404.00456); Liu et al., "SpinQuant",
//! 2024 (arXiv 2405.16406).

mod columns;
mod host;
mod quantize;
mod rows;

pub use columns::Int8Columns;
pub(crate) use host::RowStore;
pub use quantize::Int8Quantize;
pub(crate) use rows::{RotatedRows, neighbors, rows};

/// Greatest depth: a CTA keeps a row of it in registers without a spill while it quantizes it, and sums of products of values up to
/// 127 fit 32 bits.
pub const MOST_DEPTH: u32 = 49_152;

/// Fewest columns of a rotation block: fewer spread no outliers, and rows would not be whole vectors.
const LEAST_ROTATION: u32 = 16;

/// Returns the columns of a rotation block in rows of k: the largest power of two up to 128 that divides k; none below
/// 16
pub fn rotation(k: u32) -> Option<u32> {
    let columns = 1 << k.trailing_zeros().min(7);
    (columns >= LEAST_ROTATION && k > 0).then_some(columns)
}

/// Declares a source that writes rows in int8, with these headers of its family.
macro_rules! int8_source {
    ($family:literal, $file:literal, $abi:literal $(, $header:literal)*) => {
        $crate::Source {
            path: concat!($family, "/int8/", $file),
            text: include_str!(concat!("int8/", $file)),
            headers: &[
                (concat!($abi, ".h"), include_str!(concat!($abi, ".h"))),
                $((concat!($family, "/", $header), include_str!($header)),)*
                ("int8/row.cuh", include_str!("../int8/row.cuh")),
            ],
            common: &crate::COMMON,
        }
    };
}
pub(crate) use int8_source;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_largest_power_of_two_that_divides_the_depth() {
        let depths = [896, 1536, 3584, 18944, 576, 1440, 272, 16, 128, 4864];
        assert_eq!(depths.map(|k| rotation(k).unwrap()), [128, 128, 128, 128, 64, 32, 16, 16, 128, 128]);
        assert_eq!([0, 1, 8, 24, 1000].map(rotation), [None; 5]);
    }
}
