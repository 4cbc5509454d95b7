//! Exponential and logarithm with the bits of `polynomial.cuh`: the same operations in the same order, fused where
//! those are.

use std::f32::consts::{LN_2, LOG2_E};

/// Adds up a polynomial, highest power first.
#[inline(always)]
fn horner<const N: usize>(coefficients: [f32; N], x: f32) -> f32 {
    coefficients.into_iter().reduce(|sum, coefficient| sum.mul_add(x, coefficient)).unwrap_or(0.0)
}

/// Computes ln(1 + f) for f from -1/3 to 1/3.
#[inline(always)]
fn ln_1p(f: f32) -> f32 {
    const COEFFICIENTS: [f32; 9] = [
        -0.124_222,
        0.137_483_09,
        -0.122_887_22,
        0.140_558_12,
        -0.166_733_16,
        0.200_072_33,
        -0.249_999_45,
        0.333_332_72,
        -0.5,
    ];
    horner(COEFFICIENTS, f).mul_add(f * f, f)
}

/// Computes ln(x) of a normal number.
#[inline(always)]
pub(super) fn ln(x: f32) -> f32 {
    let exponent = (x.to_bits().wrapping_sub(0x3f2a_aaab) as i32) >> 23;
    let f = f32::from_bits(x.to_bits().wrapping_sub((exponent as u32) << 23)) - 1.0;
    (exponent as f32).mul_add(LN_2, ln_1p(f))
}

/// Computes 2^44 e^x as an integer, for x up to 0.
#[inline(always)]
pub(super) fn weight_of(x: f32) -> u64 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const COEFFICIENTS: [f32; 6] = [0.000_198_756_91, 0.001_398_199_9, 0.008_333_452, 0.041_665_796, 0.166_666_66, 0.5];
    let x = x.max(-32.0); // NaN, too; the weight of -32 is 0
    let rounded = x.mul_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(0.000_212_194_44, n.mul_add(-0.693_359_4, x));
    let sum = horner(COEFFICIENTS, r).mul_add(r * r, r) + 1.0;
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(44 + 127);
    (sum * f32::from_bits(exponent << 23)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_within_two_ulp() {
        for bits in (f32::MIN_POSITIVE.to_bits()..f32::INFINITY.to_bits()).step_by(40_009) {
            let x = f32::from_bits(bits);
            let exact = f64::from(x).ln();
            assert!((f64::from(ln(x)) - exact).abs() <= 2.0 * f64::from(f32::EPSILON) * exact.abs(), "{x:e}");
        }
        for step in -10_000..=10_000 {
            let f = step as f32 / 30_000.0;
            let exact = f64::from(f).ln_1p();
            assert!((f64::from(ln_1p(f)) - exact).abs() <= f64::from(f32::EPSILON) * exact.abs(), "{f}");
        }
    }

    #[test]
    fn weights_are_exponentials() {
        assert_eq!([0.0, -32.0, f32::NEG_INFINITY, f32::NAN].map(weight_of), [1 << 44, 0, 0, 0]);
        for step in 0..10_000 {
            let x = -16.0 * step as f32 / 10_000.0;
            let exact = f64::from(x).exp() * (1u64 << 44) as f64;
            assert!((weight_of(x) as f64 - exact).abs() <= 2.5e-7 * exact + 1.0, "{x}");
        }
    }
}
