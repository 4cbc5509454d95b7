//! The record of a chip, and its file.

use std::collections::BTreeMap;
use std::fmt;

use precast_core::Digest;
use serde::{Deserialize, Serialize};

use super::sketch::Sketch;

/// Version of both layouts.
pub const VERSION: u32 = 2;

/// Precisions of the training runs in evidence.
pub const PRECISIONS: [&str; 2] = ["fp32", "bf16"];

/// Size limit of a file of evidence.
pub const MOST_BYTES: u64 = 256 << 20;

/// Outputs of one chip, and a description of its machine; names nobody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// [`VERSION`].
    pub version: u32,
    /// Program that wrote it.
    pub program: Program,
    /// Device that it was measured on.
    pub chip: Chip,
    /// Caveat for readers.
    pub note: Option<String>,
    /// Seed of the random inputs.
    pub seed: u64,
    /// Results of kernels.
    #[serde(flatten)]
    pub results: Results,
    /// Short training runs.
    pub golden: Vec<Golden>,
}

/// Results of kernels: every output, or in short, as they are committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Results {
    /// Every output.
    Whole(Whole),
    /// In short.
    Summary {
        /// By key and variant.
        kernels: BTreeMap<String, KernelSummary>,
    },
}

/// Results of kernels, with every output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Whole {
    /// Findings about machine and program.
    pub doctor: Vec<Finding>,
    /// In loading order.
    pub loads: Vec<Loaded>,
    /// Comparisons of kernels with their references.
    pub checks: Vec<Check>,
    /// Times of kernels.
    pub bench: Vec<Timing>,
}

/// Outputs of one kernel, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelSummary {
    /// The first 16 digits of `KeyVariant::source_digest` for the chip's architecture.
    pub source: String,
    /// Launches that were checked.
    pub launches: Vec<Launch>,
}

/// Index of a sample, the first 16 digits of the digest of its outputs and sums, and the norm of all outputs together,
/// to four digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch(pub usize, pub String, pub f64);

/// A program and what it was built of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Its version.
    pub version: String,
    /// Digest of its file.
    pub sha256: String,
    /// Digest of the bundle.
    pub bundle: String,
}

/// A device as its driver describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chip {
    /// `NVIDIA H200`, `simulated GPU`.
    pub name: String,
    /// Architecture whose launches it runs.
    pub arch: String,
    /// None for the simulated GPU.
    pub compute_capability: Option<(u32, u32)>,
    /// Highest CUDA version that the driver supports.
    pub driver: Option<(u32, u32)>,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// True if host and device share memory.
    pub integrated: bool,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Architecture of the host's processor: `x86_64`, `aarch64`.
    pub host: String,
}

/// A finding about the machine or the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Thing that was looked at.
    pub what: String,
    /// True if it is as it should be.
    pub ok: bool,
    /// Text for people.
    pub found: String,
}

/// A module that was loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Key and variant of the kernel.
    pub kernel: String,
    /// `KeyVariant::source_digest` for the chip's architecture.
    pub source: String,
    /// None for the simulated GPU.
    pub sha256: Option<String>,
    /// Size of its code, bytes.
    pub bytes: u64,
    /// Time that the load took, microseconds.
    pub microseconds: u64,
}

/// A launch of the self-test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Key and variant of the kernel.
    pub kernel: String,
    /// Index of its sample.
    pub sample: usize,
    /// Difference from the reference, for people; none if it passes.
    pub fault: Option<String>,
    /// Outputs of the launch, in the order of the operands.
    pub outputs: Vec<Output>,
}

/// Contents of an operand after a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Name of the operand.
    pub operand: String,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// Sums over its values, by which two outputs are compared.
    pub sketch: Sketch,
}

/// A short training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Golden {
    /// Name of the run.
    pub case: String,
    /// Precision that it trained in.
    pub precision: String,
    /// Loss of each step; empty if it did not run.
    pub losses: Vec<f64>,
    /// Largest relative difference of each loss from the case's.
    pub gate: f64,
    /// Reason that it failed or did not run.
    pub fault: Option<String>,
}

/// Time of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Key and variant of the kernel.
    pub kernel: String,
    /// Time per launch, microseconds.
    pub microseconds: f64,
    /// Bytes that it must move.
    pub bytes: u64,
    /// Floating-point operations, if they bound its time.
    pub flops: u64,
}

/// A file that is no evidence, or was altered.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The file has another layout.
    #[error("it is not evidence of a chip: {0}")]
    Malformed(String),
    /// A later program wrote it.
    #[error("it has version {found}, this program reads {VERSION}: use the program that wrote it, or a later one")]
    Version {
        /// Version of the file.
        found: u32,
    },
    /// The file was changed.
    #[error("its digest is {found} and it says {said}: it was altered or truncated")]
    Altered {
        /// Digest that the file states.
        said: String,
        /// Digest of its content.
        found: Digest,
    },
}

/// Last line of a file.
#[derive(Serialize, Deserialize)]
struct Seal {
    sha256: String,
}

impl Evidence {
    /// Encodes a file: a line of JSON, and a line with its digest.
    pub fn encode(&self) -> String {
        let body = serde_json::to_string(self).expect("plain data serializes");
        let seal = Seal { sha256: Digest::of(body.as_bytes()).to_string() };
        format!("{body}\n{}\n", serde_json::to_string(&seal).expect("plain data serializes"))
    }

    /// Reads a file and checks its digest.
    ///
    /// # Errors
    /// [`EvidenceError`] if the file is altered, of another version or no evidence.
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
            seed: 0,
            results: Results::Whole(Whole {
                doctor: vec![Finding { what: "driver".into(), ok: true, found: "it is".into() }],
                loads: Vec::new(),
                checks: Vec::new(),
                bench: Vec::new(),
            }),
            golden: Vec::new(),
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
        assert!(matches!(Evidence::decode(&later), Err(EvidenceError::Version { found: 3 })));
    }
}
