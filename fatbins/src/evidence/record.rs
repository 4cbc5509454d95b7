//! The record of a chip, and its file.

use std::collections::BTreeMap;

use precast_core::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::launch::Launch;

/// Version of the layout.
pub const VERSION: u32 = 2;

/// Precisions of the training runs in evidence.
pub const PRECISIONS: [&str; 2] = ["fp32", "bf16"];

/// Size limit of a file of evidence.
pub const MOST_BYTES: u64 = 256 << 20;

/// Results of one chip, and a description of its machine; names nobody.
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
    /// Results of kernels, by key and variant.
    pub kernels: BTreeMap<String, Kernel>,
    /// Short training runs.
    pub golden: Vec<Golden>,
}

/// Results of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// The first 16 digits of `KeyVariant::source_digest` for the chip's architecture.
    pub source: String,
    /// Launches that were checked.
    pub launches: Vec<Launch>,
    /// Differences of launches from their references, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Time of its largest sample; none in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub microseconds: Option<f64>,
}

/// A program and what it was built of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Its version.
    pub version: String,
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
    /// Highest CUDA version that the driver supports; none for the simulated GPU.
    pub driver: Option<(u32, u32)>,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Architecture of the host's processor: `x86_64`, `aarch64`.
    pub host: String,
}

/// A short training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Golden {
    /// Name of the run.
    pub case: String,
    /// Precision that it trained in.
    pub precision: String,
    /// Loss of each step.
    pub losses: Vec<f64>,
    /// Largest relative difference of each loss from the case's.
    pub gate: f64,
    /// Reason that it failed.
    pub fault: Option<String>,
}

/// A file that is no evidence, or was altered.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The file has another layout.
    #[error("it is not evidence of a chip: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another program wrote it.
    #[error("it has version {0}, this program reads {VERSION}: use the program that wrote it")]
    Version(u64),
    /// The file was changed.
    #[error("its digest is {0}, which its last line does not say: it was altered or truncated")]
    Altered(Digest),
}

impl Evidence {
    /// Encodes a file: a line of JSON, and a line with its digest.
    pub fn encode(&self) -> String {
        let body = serde_json::to_string(self).expect("plain data serializes");
        format!("{body}\n{}\n", json!({ "sha256": Digest::of(body.as_bytes()).to_string() }))
    }

    /// Reads a file and checks its digest.
    ///
    /// # Errors
    /// [`EvidenceError`] if the file is altered, of another version or no evidence.
    pub fn decode(text: &str) -> Result<Self, EvidenceError> {
        let lines = text.strip_suffix('\n').and_then(|text| text.split_once('\n'));
        let (body, seal) = lines.unwrap_or_default();
        let (seal, found) = (serde_json::from_str::<Value>(seal)?, Digest::of(body.as_bytes()));
        if seal["sha256"] != found.to_string() {
            return Err(EvidenceError::Altered(found));
        }
        let value: Value = serde_json::from_str(body)?;
        match value["version"].as_u64() {
            Some(version) if version != u64::from(VERSION) => Err(EvidenceError::Version(version)),
            _ => Ok(serde_json::from_value(value)?),
        }
    }

    /// Drops what is not compared.
    pub fn summary(mut self) -> Self {
        self.kernels.values_mut().for_each(|kernel| kernel.microseconds = None);
        self
    }

    /// Returns the training run in a precision, unless it made no step.
    pub fn run(&self, precision: &str) -> Option<&Golden> {
        self.golden.iter().find(|run| run.precision == precision && !run.losses.is_empty())
    }

    /// Lists the faults of kernels and training runs, for people.
    pub fn faults(&self) -> Vec<String> {
        let kernels =
            self.kernels.iter().flat_map(|(name, kernel)| kernel.faults.iter().map(move |fault| (name, fault)));
        let golden = self.golden.iter().filter_map(|run| Some((&run.precision, run.fault.as_ref()?)));
        kernels.chain(golden).map(|(of, fault)| format!("{of}: {fault}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_reads_back_to_the_last_bit(gate in any::<f64>().prop_filter("no JSON", |gate| gate.is_finite())) {
            let run = Golden { case: "tiny".into(), precision: "fp32".into(), losses: vec![gate], gate, fault: None };
            let text = serde_json::to_string(&run).unwrap();
            prop_assert_eq!(serde_json::from_str::<Golden>(&text).unwrap(), run);
        }
    }

    #[test]
    fn a_file_reads_back_and_every_changed_byte_is_seen() {
        let evidence = Evidence {
            version: VERSION,
            program: Program { version: "0.1.0".into(), bundle: "1".into() },
            chip: Chip {
                name: "a chip".into(),
                arch: "sm_121".into(),
                driver: Some((13, 0)),
                memory_bytes: 1 << 37,
                host: "aarch64".into(),
            },
            note: None,
            seed: 0,
            kernels: BTreeMap::from([("add{}[threads=256]".into(), Kernel::default())]),
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
        assert!(matches!(Evidence::decode(&later), Err(EvidenceError::Version(3))));
    }
}
