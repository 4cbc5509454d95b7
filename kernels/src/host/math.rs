//! Elementary functions that vectorize.

/// Runs a loop with the widest vector instructions of this CPU.
///
/// Inlines `work` into a copy compiled for each instruction set, so plain loops inside it vectorize.
#[inline(always)]
pub fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// Computes `e^x` within 2 ulp, without branches: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes `expf`).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-104.0, 89.0);
    let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (clamped - n * LN2_HI) - n * LN2_LO;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let e = p * r * r + r + 1.0;
    // Two factors, so that results down to the smallest subnormal keep their exponent in range.
    let n = rounded.to_bits() as i32 - ROUND.to_bits() as i32;
    let half = n >> 1;
    let scale = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    let result = e * scale(half) * scale(n - half);
    if x.is_nan() { x } else { result }
}

/// Computes `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exp_is_within_two_ulp(x in -87.0f32..88.0) {
            let exact = f64::from(x).exp();
            let ulp = f64::from(f32::EPSILON) * exact;
            prop_assert!((f64::from(exp(x)) - exact).abs() <= 2.0 * ulp, "{x}");
        }
    }

    #[test]
    fn exp_takes_infinities_and_nan_and_gives_subnormals() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(-200.0), 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-100.0) > 0.0);
    }
}
