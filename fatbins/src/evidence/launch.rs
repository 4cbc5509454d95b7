//! Outputs of a launch, in short.

use precast_core::check::floats;
use precast_core::{Digest, Format};
use serde::{Deserialize, Serialize};

/// Number of random signed sums in the digest of an output.
const SUMS: usize = 32;

/// Index of a sample, the first 16 digits of the digest of its outputs, and the norm of all outputs together, to four
/// digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch(pub usize, pub String, pub f64);

/// Shortens a digest to as many digits as an entry symbol has.
pub fn short(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}

impl Launch {
    /// Summarizes the outputs of a sample: the name, format and bytes of each.
    pub fn of<'a>(sample: usize, outputs: impl IntoIterator<Item = (&'a str, Format, &'a [u8])>) -> Self {
        let (mut parts, mut square) = (Vec::new(), 0.0);
        for (name, format, bytes) in outputs {
            let (own, sums) = sums(format, bytes);
            square += own;
            let sums = sums.iter().flat_map(|sum| published(*sum).to_le_bytes()).collect();
            parts.extend([name.as_bytes().to_vec(), Digest::of(bytes).to_string().into_bytes(), sums]);
        }
        let digest = Digest::of_parts("precast.launch", parts.iter().map(Vec::as_slice)).to_string();
        Self(sample, short(&digest).to_owned(), format!("{:.3e}", square.sqrt()).parse().expect("a number"))
    }
}

/// Returns a sum as published digests have it: its decimal digits as an integer, times or through a power of ten. That
/// rounds twice, so it is the sum or a neighbor.
fn published(sum: f64) -> f64 {
    let text = serde_json::json!(sum).to_string();
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len()) as i32;
    let exponent = exponent.parse::<i32>().expect("an exponent") - decimals;
    let integer: u64 = digits.replace(['-', '.'], "").parse().expect("digits");
    let power: f64 = format!("1e{}", exponent.abs()).parse().expect("a power of ten");
    let rounded = if exponent < 0 { integer as f64 / power } else { integer as f64 * power };
    rounded.copysign(sum)
}

/// Returns ‖x‖² over the finite elements, and their sums, each with its own random signs: published digests have them.
fn sums(format: Format, bytes: &[u8]) -> (f64, [f64; SUMS]) {
    let (mut square, mut sums, mut state) = (0.0, [0.0; SUMS], 0u64);
    for value in floats(format, bytes) {
        // One bit per sum, from a portable generator (splitmix64).
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        if value.is_finite() {
            let mut signs = state;
            signs = (signs ^ (signs >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            signs = (signs ^ (signs >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            signs ^= signs >> 31;
            square += value * value;
            for (index, sum) in sums.iter_mut().enumerate() {
                *sum += if signs >> index & 1 == 0 { value } else { -value };
            }
        }
    }
    (square, sums)
}

#[cfg(test)]
mod tests {
    use precast_core::Dtype;

    use super::*;

    fn launch(values: &[f32]) -> Launch {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Launch::of(7, [("y", Format::Dense(Dtype::F32), &*bytes), ("z", Format::Dense(Dtype::I8), &[252])])
    }

    /// The digest is compared with published ones: no build may compute another.
    #[test]
    fn a_launch_has_the_digest_of_all_its_outputs_and_their_norm() {
        let own = launch(&[1.0, -2.0, 2.00004]);
        assert_eq!(own, Launch(7, "ba3bbae8a6d02ac2".to_owned(), 5.0));
        assert_ne!(launch(&[1.0, -2.0, 2.000_041]).1, own.1);
        let not_finite = launch(&[1.0, f32::NAN, 2.0]);
        assert!(not_finite.1 != own.1 && not_finite.2 == 4.583);
    }

    /// Numbers as serde_json reads them without its feature `float_roundtrip`.
    #[test]
    fn a_published_sum_is_rounded_twice() {
        for (sum, expected) in [
            (7.777777777777777e54, 7.777777777777776e54),
            (-1.5213614302834976e-236, -1.5213614302834974e-236),
            (-0.0, -0.0),
            (5.0, 5.0),
            (0.1, 0.1),
        ] {
            assert_eq!(published(sum).to_bits(), f64::to_bits(expected), "{sum:e}");
        }
    }
}
