//! Scales of least squared error: the operations of `scales.cuh`, in their order.

use half::f16;

use crate::abi::SCALE_CANDIDATES;

/// Returns the candidates of a scale, in eighths of a step.
fn candidates() -> impl Iterator<Item = f32> {
    (-(SCALE_CANDIDATES as i16)..=SCALE_CANDIDATES as i16).map(|eighths| 0.125 * f32::from(eighths))
}

/// Returns the nearest whole number in `[low, high]`, ties to even.
pub(super) fn whole(value: f32, low: f32, high: f32) -> f32 {
    // Above 2^23 floats are whole.
    value.max(low).min(high) + 12_582_912.0 - 12_582_912.0
}

pub(super) fn inverse_of(value: f32) -> f32 {
    if value == 0.0 { 0.0 } else { 1.0 / value }
}

/// Returns a scale as a block stores it, never infinite.
pub(super) fn stored_half(value: f32) -> f16 {
    f16::from_f32(value.clamp(-65504.0, 65504.0))
}

/// Returns the value of the largest magnitude, the first of equal ones.
pub(super) fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0f32, |result, &x| if x.abs() > result.abs() { x } else { result })
}

/// Returns the scale of numbers from `low` to `-low - 1` with the least squared error.
pub(super) fn symmetric_scale<const N: usize>(low: f32, x: &[f32; N]) -> f32 {
    let per_extreme = inverse_of(extreme(x));
    let (mut best_xq, mut best_qq) = (0.0f32, 1.0f32);
    for candidate in candidates() {
        let inverse = (low + candidate) * per_extreme;
        let (mut xq, mut qq) = (0.0, 0.0);
        for x in x {
            let q = whole(x * inverse, low, -low - 1.0);
            xq += x * q;
            qq += q * q;
        }
        // The error is that of zeros less xq^2 / qq.
        if xq * xq * best_qq > best_xq * best_xq * qq {
            (best_xq, best_qq) = (xq, qq);
        }
    }
    best_xq / best_qq
}

/// Scale and minimum: `scale * q - min`.
#[derive(Clone, Copy, Default)]
pub(super) struct Affine {
    pub scale: f32,
    pub min: f32,
}

/// Returns scale and minimum of numbers from 0 to 15 with the least squared error.
pub(super) fn affine_scale<const N: usize>(x: &[f32; N]) -> Affine {
    let count = N as f32;
    let low = x.iter().fold(0.0f32, |low, x| low.min(*x));
    let high = x.iter().fold(x[0], |high, x| high.max(*x));
    let sum = x.iter().fold(0.0, |sum, x| sum + x);
    let per_range = inverse_of(high - low);
    let mut best = Affine { scale: (high - low) / 15.0, min: -low };
    let mut best_gain = -1.0;
    for candidate in candidates() {
        let inverse = (15.0 + candidate) * per_range;
        let (mut q1, mut q2, mut xq) = (0.0, 0.0, 0.0);
        for x in x {
            let q = whole((x - low) * inverse, 0.0, 15.0);
            q1 += q;
            q2 += q * q;
            xq += x * q;
        }
        let determinant = count * q2 - q1 * q1;
        if determinant <= 0.0 {
            continue;
        }
        let mut scale = (count * xq - sum * q1) / determinant;
        let mut offset = (q2 * sum - q1 * xq) / determinant;
        if offset > 0.0 {
            (scale, offset) = (xq / q2, 0.0);
        }
        // The error is that of zeros less this.
        let gain = scale * xq + offset * sum;
        if gain > best_gain {
            (best, best_gain) = (Affine { scale, min: -offset }, gain);
        }
    }
    best
}
