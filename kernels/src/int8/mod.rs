//! Linear layers in int8, rotated: products of 8-bit values whose sums are exact.
//!
//! A quantised matrix `[rows, k]` is `q`, i8 `[rows, k]`, and `scale`, f32 `[rows]`. Its rows are rotated first, which spreads
//! outliers over the columns: blocks of r columns, the largest power of two up to 128 that divides k, are multiplied by the
//! orthonormal Hadamard matrix `H_r / sqrt(r)` in Sylvester's order. With both matrices rotated, products are those of the originals:
//! `x w^T = (x H) (w H)^T`.
//!
//! | op | result | reads |
//! | --- | --- | --- |
//! | `int8.quantize` | `q = round(x H / scale)`, `scale = max abs (x H) / 127` of a row | x rows x k, dtype x |
//! | `int8.columns` | the same of the columns of x: `q` is i8 `[columns, n]`, with n as k | x n x columns, dtype x |
//! | `int8.rmsnorm` | the same of `rmsnorm.fwd`'s y, which is not rounded first; `sum = x + delta` | x, delta tokens x h, gamma h |
//! | `int8.rmsnorm_fwd` | all that `rmsnorm.fwd` writes, and `int8.quantize` of its y | as `int8.rmsnorm` |
//! | `int8.rmsnorm_bwd`, `int8.rmsnorm_dgrad` | all that `rmsnorm.bwd` or `.dgrad` write, and `int8.quantize` of dx | as those |
//! | `int8.gated` | `int8.quantize` of `swiglu.fwd`'s y, and y if kept | gate_up tokens x 2n, bf16 |
//! | `int8.gated_bwd` | `swiglu.bwd`'s dgate_up, and `int8.quantize` of it | gate_up tokens x 2n, dy tokens x n, bf16 |
//! | `int8.fwd` | `y = (q_x q_w^T) (scale_x scale_w) (+ bias) (+ residual)`, m x n, dtype y | x m x k, w n x k, bias n, residual m x n |
//! | `int8.swiglu` | `y = silu(gate) up` with `(gate, up)` as of `int8.fwd`, rounded to y first | x m x k, w 2n x k, bias 2n |
//!
//! Sums of products are i32 and exact: `k 127^2 < 2^31` for k up to [`MOST_DEPTH`], whatever the order, tile or instruction. What follows is
//! f32, each operation rounded apart in this order, so outputs are the same bits on every architecture, in every variant and on the
//! host; but for the exponential in `int8.swiglu`. `int8.quantize` and `int8.columns` are the host's bits, too. Rows of zeros (all
//! below 2^-100) have scale 0 and values 0; rows with what is not finite have a scale of NaN.
//!
//! What trains is quantised as it is stored, in bf16. `int8.gated` and `int8.gated_bwd` write the bits of the two kernels in whose
//! place they stand; so do norms, but for the order of their sums over a row. None reads what it has written.
//!
//! Products run on tensor cores (`wgmma/` on sm_90a, `mma/` elsewhere) with the mainloops of `gemm`: a pair of values is one of
//! their 16-bit elements. k is a multiple of 16, n of 8, addresses of 16 bytes; what instructions want beyond k is zeros that the
//! copies fill in.
//!
//! Sources: Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", 2024 (arXiv 2404.00456); Liu et al., "SpinQuant",
//! 2024 (arXiv 2405.16406).

mod columns;
mod gated;
mod host;
mod norm;
mod product;
mod quantize;
mod rows;

pub use columns::Int8Columns;
pub use gated::{Int8Gated, Int8GatedBwd};
pub use norm::{Int8Rmsnorm, Int8RmsnormBwd, Int8RmsnormDgrad, Int8RmsnormFwd};
pub use product::{Int8Fwd, Int8Swiglu};
pub use quantize::Int8Quantize;

/// Longest sums of products of two values of at most 127 that fit 32 bits: the largest power of two below 2^31 / 127^2.
pub const MOST_DEPTH: u32 = 131_072;

/// Least columns of a rotation block: fewer spread no outliers, and rows would not be whole vectors.
const LEAST_ROTATION: u32 = 16;

/// Columns of a rotation block of rows of k: the largest power of two up to 128 that divides k; none below 16.
pub fn rotation(k: u32) -> Option<u32> {
    let columns = 1 << k.trailing_zeros().min(7);
    (columns >= LEAST_ROTATION && k > 0).then_some(columns)
}

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
