//! Sketches outputs by random signed sums.

use precast_core::{Dtype, Format};
use serde::{Deserialize, Serialize};

/// Random signed sums of a vector: two sketches give the approximate distance of their vectors, where digests only tell
/// that they differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sketch {
    /// ‖x‖ over finite elements.
    pub norm: f64,
    /// Number of non-finite elements.
    pub not_finite: u64,
    /// Sums over finite elements, each with its own signs.
    pub sums: Vec<f64>,
}

/// Number of sums: a distance is accurate to about a quarter.
const SUMS: usize = 32;

impl Sketch {
    /// Sketches elements in a format.
    pub fn of(format: Format, bytes: &[u8]) -> Self {
        let mut sketch = Self { norm: 0.0, not_finite: 0, sums: vec![0.0; SUMS] };
        // One bit per sum, from a portable generator (splitmix64).
        let mut state = 0u64;
        each(format, bytes, |value| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            if !value.is_finite() {
                sketch.not_finite += 1;
                return;
            }
            let mut signs = state;
            signs = (signs ^ (signs >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            signs = (signs ^ (signs >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            signs ^= signs >> 31;
            sketch.norm += value * value;
            for (index, sum) in sketch.sums.iter_mut().enumerate() {
                *sum += if signs >> index & 1 == 0 { value } else { -value };
            }
        });
        sketch.norm = sketch.norm.sqrt();
        sketch
    }

    /// Estimates ‖a − b‖; infinite if the outputs cannot agree.
    pub fn distance(&self, other: &Self) -> f64 {
        if self.sums.len() != other.sums.len() || self.not_finite != other.not_finite {
            return f64::INFINITY;
        }
        let square: f64 = self.sums.iter().zip(&other.sums).map(|(a, b)| (a - b) * (a - b)).sum();
        (square / self.sums.len().max(1) as f64).sqrt()
    }
}

fn each(format: Format, bytes: &[u8], mut take: impl FnMut(f64)) {
    let f32_of = |b: &[u8; 4]| f64::from(f32::from_le_bytes(*b));
    match format {
        Format::Dense(Dtype::F32) => bytes.as_chunks().0.iter().for_each(|element| take(f32_of(element))),
        Format::Dense(Dtype::Bf16) => {
            bytes.as_chunks().0.iter().for_each(|[low, high]| take(f32_of(&[0, 0, *low, *high])));
        }
        Format::Dense(Dtype::U32) => {
            bytes.as_chunks().0.iter().for_each(|element| take(f64::from(u32::from_le_bytes(*element))));
        }
        Format::Dense(Dtype::I8) => bytes.iter().for_each(|byte| take(f64::from(*byte as i8))),
        Format::Block(_) => bytes.iter().for_each(|byte| take(f64::from(*byte))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn sketches_say_how_far_outputs_are_apart() {
        let format = Format::Dense(Dtype::F32);
        let values: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.7).sin()).collect();
        let sketch = Sketch::of(format, &bytes(&values));
        for share in [1e-3f32, 1e-2, 0.3] {
            let other: Vec<f32> =
                values.iter().zip(0..).map(|(v, i): (&f32, i32)| v + share * (i as f32 * 1.3).cos()).collect();
            let distance = Sketch::of(format, &bytes(&other)).distance(&sketch) / sketch.norm;
            let expected = f64::from(share);
            assert!((0.5 * expected..1.6 * expected).contains(&distance), "{share}: {distance}");
        }
        assert_eq!(sketch.distance(&sketch), 0.0);
        let mut broken = values;
        broken[77] = f32::NAN;
        assert_eq!(Sketch::of(format, &bytes(&broken)).distance(&sketch), f64::INFINITY);
    }
}
