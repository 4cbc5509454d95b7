//! What a chip computed, written down by its owner: a line of JSON, and a line with its digest.

use std::fmt;

use precast_kernels::{Digest, Dtype, Format};
use serde::{Deserialize, Serialize};

/// Of the layout below.
pub const VERSION: u32 = 1;

/// Most bytes of a file of evidence.
pub const MOST_BYTES: u64 = 256 << 20;

/// What one chip computed, and what its machine is; nothing of whose it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// [`VERSION`].
    pub version: u32,
    pub program: Program,
    pub chip: Chip,
    /// What whoever reads this must know before all else.
    pub note: Option<String>,
    pub doctor: Vec<Finding>,
    /// In the order of their loading.
    pub loads: Vec<Loaded>,
    /// Of the random inputs.
    pub seed: u64,
    pub checks: Vec<Check>,
    pub golden: Vec<Golden>,
    pub bench: Vec<Timing>,
}

/// The program that ran, and its kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub version: String,
    /// Digest of its file.
    pub sha256: String,
    /// Digest of the bundle.
    pub bundle: String,
}

/// The device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chip {
    /// `NVIDIA H200`, `simulated GPU`.
    pub name: String,
    /// The architecture whose code ran.
    pub arch: String,
    /// None for the simulated GPU.
    pub compute_capability: Option<(u32, u32)>,
    /// Highest CUDA version that the driver takes.
    pub driver: Option<(u32, u32)>,
    pub memory_bytes: u64,
    /// Whether host and device have one memory.
    pub integrated: bool,
    pub multiprocessors: u32,
    /// What the host's processor is: `x86_64`, `aarch64`.
    pub host: String,
}

/// Something that `precast doctor` looks at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub what: String,
    pub ok: bool,
    pub found: String,
}

/// A module that was loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Key and variant.
    pub kernel: String,
    /// None for the simulated GPU.
    pub sha256: Option<String>,
    pub bytes: u64,
    pub microseconds: u64,
}

/// A launch of the self-test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Key and variant.
    pub kernel: String,
    /// Which of its samples.
    pub sample: usize,
    /// How it is not what its reference is.
    pub fault: Option<String>,
    pub outputs: Vec<Output>,
}

/// What a launch left in an operand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    pub operand: String,
    pub sha256: String,
    pub sketch: Sketch,
}

/// A short training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Golden {
    pub case: String,
    pub precision: String,
    /// Of each step; empty where it did not run.
    pub losses: Vec<f64>,
    /// The largest relative difference that each loss may have from what the case says.
    pub gate: f64,
    /// Why it is not what the case says, or did not run.
    pub fault: Option<String>,
}

/// The time of one launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Key and variant.
    pub kernel: String,
    pub microseconds: f64,
    /// That it has to move.
    pub bytes: u64,
    /// Floating-point operations, where they bound its time.
    pub flops: u64,
}

/// Random signed sums of many numbers: from those of two outputs follows about how far the outputs are apart, where digests say
/// no more than that they differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sketch {
    /// ‖x‖ of the elements that are finite.
    pub norm: f64,
    /// Elements that are not.
    pub not_finite: u64,
    /// Each of all elements that are, with signs of its own.
    pub sums: Vec<f64>,
}

/// Sums of a sketch: a distance of two follows to about a quarter.
const SUMS: usize = 32;

impl Sketch {
    /// Of elements in a format.
    pub fn of(format: Format, bytes: &[u8]) -> Self {
        let mut sketch = Self { norm: 0.0, not_finite: 0, sums: vec![0.0; SUMS] };
        // A bit for each sum, of a generator that is the same everywhere (splitmix64).
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

    /// About ‖a − b‖ / ‖b‖; infinite where they cannot be of outputs that agree.
    pub fn distance(&self, other: &Self) -> f64 {
        if self.sums.len() != other.sums.len() || self.not_finite != other.not_finite {
            return f64::INFINITY;
        }
        let square: f64 = self.sums.iter().zip(&other.sums).map(|(a, b)| (a - b) * (a - b)).sum();
        match (square / self.sums.len().max(1) as f64).sqrt() {
            0.0 => 0.0,
            distance => distance / other.norm,
        }
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

/// A file that is no evidence, or not as it was written.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The file has another layout.
    #[error("it is not evidence that `precast evidence` wrote: {0}")]
    Malformed(String),
    /// A later program wrote it.
    #[error("it has version {found}, this program reads {VERSION}: use the program that wrote it, or a later one")]
    Version { found: u32 },
    /// The file was changed.
    #[error("its digest is {found} and it says {said}: it was altered or cut short")]
    Altered { said: String, found: Digest },
}

/// The last line.
#[derive(Serialize, Deserialize)]
struct Seal {
    sha256: String,
}

impl Evidence {
    /// The file: a line of JSON, and a line with the digest of its bytes.
    pub fn encode(&self) -> String {
        let body = serde_json::to_string(self).expect("plain data serialises");
        let seal = Seal { sha256: Digest::of(body.as_bytes()).to_string() };
        format!("{body}\n{}\n", serde_json::to_string(&seal).expect("plain data serialises"))
    }

    /// Reads a file and checks its digest.
    ///
    /// # Errors
    /// [`EvidenceError`].
    pub fn decode(text: &str) -> Result<Self, EvidenceError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let malformed = |error: &dyn fmt::Display| EvidenceError::Malformed(error.to_string());
        let lines = text.strip_suffix('\n').and_then(|text| text.split_once('\n'));
        let (body, seal) = lines.ok_or_else(|| malformed(&"it is not two lines"))?;
        let seal: Seal = serde_json::from_str(seal).map_err(|error| malformed(&error))?;
        let found = Digest::of(body.as_bytes());
        if found.to_string() != seal.sha256 {
            return Err(EvidenceError::Altered { said: seal.sha256, found });
        }
        let Versioned { version } = serde_json::from_str(body).map_err(|error| malformed(&error))?;
        if version != VERSION {
            return Err(EvidenceError::Version { found: version });
        }
        serde_json::from_str(body).map_err(|error| malformed(&error))
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
            let distance = Sketch::of(format, &bytes(&other)).distance(&sketch);
            let expected = f64::from(share);
            assert!((0.5 * expected..1.6 * expected).contains(&distance), "{share}: {distance}");
        }
        assert_eq!(sketch.distance(&sketch), 0.0);
        let mut broken = values;
        broken[77] = f32::NAN;
        assert_eq!(Sketch::of(format, &bytes(&broken)).distance(&sketch), f64::INFINITY);
    }

    #[test]
    fn a_file_reads_back_and_every_changed_byte_is_seen() {
        let evidence = Evidence {
            version: VERSION,
            program: Program { version: "0.1.0".into(), sha256: "0".into(), bundle: "1".into() },
            chip: Chip {
                name: "a chip".into(),
                arch: "sm_121".into(),
                compute_capability: Some((12, 1)),
                driver: Some((13, 0)),
                memory_bytes: 1 << 37,
                integrated: true,
                multiprocessors: 48,
                host: "aarch64".into(),
            },
            note: None,
            doctor: vec![Finding { what: "driver".into(), ok: true, found: "it is".into() }],
            loads: Vec::new(),
            seed: 0,
            checks: Vec::new(),
            golden: Vec::new(),
            bench: Vec::new(),
        };
        let text = evidence.encode();
        assert_eq!(Evidence::decode(&text).unwrap(), evidence);
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert!(String::from_utf8(damaged).is_ok_and(|text| Evidence::decode(&text).is_err()), "byte {at}");
            assert!(Evidence::decode(&text[..at]).is_err(), "{at} bytes");
        }
        let later = Evidence { version: VERSION + 1, ..evidence }.encode();
        assert!(matches!(Evidence::decode(&later), Err(EvidenceError::Version { found: 2 })));
    }
}
