//! Rounding of AdamW's moments.

use half::bf16;

/// A moment in memory.
pub(super) trait Moment: bytemuck::Pod + Send {
    fn widened(self) -> f32;
    /// Rounds with 32 random bits, of which a format uses some.
    fn rounded(value: f32, random: impl FnOnce() -> u32) -> Self;
}

impl Moment for f32 {
    #[inline(always)]
    fn widened(self) -> f32 {
        self
    }
    #[inline(always)]
    fn rounded(value: f32, _random: impl FnOnce() -> u32) -> Self {
        value
    }
}

impl Moment for bf16 {
    #[inline(always)]
    fn widened(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// Rounds up as often as the lower half is a part of what a bf16 counts; finite values stay finite.
    #[inline(always)]
    fn rounded(value: f32, random: impl FnOnce() -> u32) -> Self {
        const SIGN: u32 = 1 << 31;
        const INFINITY: u32 = 0x7f80_0000;
        let (sign, magnitude) = (value.to_bits() & SIGN, value.to_bits() & !SIGN);
        let rounded = match magnitude {
            0..INFINITY => (magnitude + (random() & 0xffff)).min(INFINITY - 1),
            INFINITY => INFINITY,
            // A NaN whose payload is in the lower half alone would become infinite.
            _ => magnitude | 0x40_0000,
        };
        bf16::from_bits(((sign | rounded) >> 16) as u16)
    }
}

/// The random numbers of a step. Step and element decide them, and nothing else: neither the rank nor the launch.
#[derive(Clone, Copy)]
pub(super) struct Randoms {
    step: u32,
}

impl Randoms {
    pub fn of(step: u32) -> Self {
        Self { step: mixed(step) }
    }

    /// Returns the bits of an element's first moment, in the lower half, and of its second.
    #[inline(always)]
    pub fn element(self, index: u64) -> u32 {
        mixed(index as u32 ^ mixed((index >> 32) as u32 ^ self.step))
    }
}

/// lowbias32 of Wellons, "Prospecting for Hash Functions", 2018: a bijection of which each bit depends on all.
#[inline(always)]
fn mixed(mut x: u32) -> u32 {
    x = (x ^ x >> 16).wrapping_mul(0x7feb_352d);
    x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps over which a value is rounded.
    const STEPS: u32 = 1 << 14;

    fn rounded(value: f32, random: u32) -> f32 {
        <bf16 as Moment>::rounded(value, || random).widened()
    }

    #[test]
    fn the_mean_of_what_is_stored_is_the_value() {
        // A value whose lower half is 0 stays; of others one of two neighbors is stored, as often as it is near.
        for value in [1.0, 1.001, -3.337, 1e-30, 2.5e-40, 1.0 + f32::EPSILON] {
            let (below, above) = (rounded(value, 0), rounded(value, 0xffff));
            for (element, half) in [(0, 0), (7, 16), (1 << 40, 0), ((1 << 40) + 1, 16)] {
                let of = |step| rounded(value, Randoms::of(step).element(element) >> half);
                let all: Vec<f32> = (1..=STEPS).map(of).collect();
                assert!(all.iter().all(|one| [below, above].contains(one)), "{value}");
                let mean = all.iter().map(|one| f64::from(*one)).sum::<f64>() / f64::from(STEPS);
                // Five standard deviations of a mean of as many draws.
                let bound = 2.5 * f64::from(above - below).abs() / f64::from(STEPS).sqrt();
                assert!((mean - f64::from(value)).abs() <= bound, "{value}: {mean}, element {element}");
            }
        }
    }

    #[test]
    fn a_sum_of_small_changes_grows_where_the_nearest_value_stays() {
        let change = |v: f32| v + 1e-4;
        let grown = |element| {
            let random = |step| Randoms::of(step).element(element) >> 16;
            let next = |v: bf16, step| <bf16 as Moment>::rounded(change(v.widened()), || random(step));
            f64::from((1..=STEPS).fold(bf16::ONE, next).widened())
        };
        let mean = (0..64).map(grown).sum::<f64>() / 64.0;
        // Five standard deviations: a step rounds by up to 1/64, and so has a variance of 1e-4/64 at most.
        assert!((mean - 1.0 - 1e-4 * f64::from(STEPS)).abs() < 5.0 * 0.16 / 8.0, "{mean}");
        let nearest = (1..=STEPS).fold(bf16::ONE, |v, _| bf16::from_f32(change(v.widened())));
        assert_eq!(nearest, bf16::ONE);
    }

    #[test]
    fn finite_values_stay_finite_and_others_what_they_are() {
        for random in [0, 1, 0x8000, 0xffff, u32::MAX] {
            for sign in [1.0, -1.0f32] {
                assert_eq!(rounded(0.0 * sign, random).to_bits(), (0.0 * sign).to_bits());
                assert_eq!(rounded(f32::INFINITY * sign, random), f32::INFINITY * sign);
                assert_eq!(rounded(f32::MAX * sign, random), bf16::MAX.widened() * sign);
                assert!(rounded(f32::from_bits(0x7f80_0001) * sign, random).is_nan());
            }
            assert!(rounded(f32::from_bits(0xff80_0001), random).is_nan());
            assert!(rounded(f32::from_bits(0x7fff_ffff), random).is_nan());
            assert!(rounded(f32::from_bits(1), random) >= 0.0);
        }
    }

    /// Neither an element's next step, nor its neighbor, nor its other moment follows from its number.
    #[test]
    fn bits_are_even_and_independent() {
        let of = |step: u32, element: u64| Randoms::of(step).element(element);
        for (steps, elements) in [(1, 0), (0, 1), (0, 1 << 32)] {
            let mut set = [[0u32; 32]; 2];
            for at in 0..u64::from(STEPS) {
                let (step, element) = ((at % 128) as u32 + 1, at / 128 * 4 + (1 << 33));
                let (number, other) = (of(step, element), of(step + steps, element + elements));
                for (counts, bits) in set.iter_mut().zip([number, number ^ other]) {
                    counts.iter_mut().enumerate().for_each(|(bit, count)| *count += bits >> bit & 1);
                }
            }
            // Five standard deviations.
            let even = |count: u32| count.abs_diff(STEPS / 2) < 5 * 64;
            assert!(set.iter().flatten().all(|count| even(*count)), "{set:?}");
        }
        let halves: u32 = (1..=STEPS).map(|step| (of(step, 9) & 0xffff ^ of(step, 9) >> 16).count_ones()).sum();
        assert!(halves.abs_diff(8 * STEPS) < 5 * 2 * 128, "{halves}");
    }
}
