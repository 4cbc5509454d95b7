//! What a chip computed, written down by its owner: a line of JSON, and a line with its digest. [`Summary`] is the part of it that
//! this repository keeps.

mod sketch;
mod summary;

use std::fmt;

use precast_kernels::Digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use sketch::Sketch;
pub use summary::{Faulty, KernelSummary, Launch, Summary, short};

/// Of the layouts of both.
pub const VERSION: u32 = 2;

/// Precisions of the training runs that evidence holds.
pub const PRECISIONS: [&str; 2] = ["fp32", "bf16"];

/// Most bytes of a file of evidence.
pub const MOST_BYTES: u64 = 256 << 20;

/// Lists the outputs of one chip, and describes its machine; names nobody.
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
    /// `KeyVariant::source_digest` for the chip's architecture.
    pub source: String,
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

/// A file of either kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Gathered {
    Whole(Evidence),
    Summary(Summary),
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

/// The bytes of a file: a line of JSON, and a line with its digest.
fn seal<T: Serialize>(content: &T) -> String {
    let body = serde_json::to_string(content).expect("plain data serialises");
    let seal = Seal { sha256: Digest::of(body.as_bytes()).to_string() };
    format!("{body}\n{}\n", serde_json::to_string(&seal).expect("plain data serialises"))
}

/// The content of a file whose digest and version are right.
fn unseal<T: DeserializeOwned>(text: &str) -> Result<T, EvidenceError> {
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

impl Evidence {
    /// The file.
    pub fn encode(&self) -> String {
        seal(self)
    }

    /// Reads a file and checks its digest.
    ///
    /// # Errors
    /// [`EvidenceError`].
    pub fn decode(text: &str) -> Result<Self, EvidenceError> {
        unseal(text)
    }
}

impl Gathered {
    /// Reads a file of either kind and checks its digest.
    ///
    /// # Errors
    /// [`EvidenceError`].
    pub fn decode(text: &str) -> Result<Self, EvidenceError> {
        unseal(text)
    }

    pub fn chip(&self) -> &Chip {
        match self {
            Self::Whole(evidence) => &evidence.chip,
            Self::Summary(summary) => &summary.chip,
        }
    }

    /// Seed of the random inputs.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Whole(evidence) => evidence.seed,
            Self::Summary(summary) => summary.seed,
        }
    }

    pub fn note(&self) -> &Option<String> {
        match self {
            Self::Whole(evidence) => &evidence.note,
            Self::Summary(summary) => &summary.note,
        }
    }

    pub fn golden(&self) -> &[Golden] {
        match self {
            Self::Whole(evidence) => &evidence.golden,
            Self::Summary(summary) => &summary.golden,
        }
    }

    /// The part that this repository keeps.
    ///
    /// # Errors
    /// [`Faulty`] where a launch or a training run is not as it should be: that is kept whole.
    pub fn summary(self) -> Result<Summary, Faulty> {
        match self {
            Self::Whole(evidence) => Summary::of(&evidence),
            Self::Summary(summary) => Ok(summary),
        }
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
        assert!(matches!(Evidence::decode(&later), Err(EvidenceError::Version { found: 3 })));
    }
}
