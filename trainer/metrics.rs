//! `metrics.jsonl`: one object a step, flushed as it is written.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Failure;

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// From 1.
    pub step: u64,
    /// alpha T^2 kd_loss + (1 - alpha) ce_loss.
    pub loss: Option<f64>,
    /// KL(teacher || student) at temperature, mean over counted tokens, nats.
    pub kd_loss: Option<f64>,
    /// Cross entropy at temperature 1, mean over counted tokens, nats.
    pub ce_loss: Option<f64>,
    /// L2 norm of all gradients before clipping.
    pub grad_norm: Option<f64>,
    /// Learning rate.
    pub lr: f64,
    /// Tokens that counted.
    pub tokens: u64,
    /// Time of the step.
    pub step_ms: f64,
    /// Counted tokens over that time.
    pub tokens_per_s: f64,
    /// Device memory of the run.
    pub memory_bytes: u64,
    /// The gradient norm was not finite and the weights were left alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// A value as JSON can hold it: none where it is not finite.
pub fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The file.
pub struct MetricsFile {
    path: PathBuf,
    file: File,
}

impl MetricsFile {
    /// Starts anew, or keeps the first `keep` lines of a run that continues.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub fn create(path: &Path, keep: u64) -> Result<Self, Failure> {
        let kept: Vec<StepRecord> =
            if keep > 0 { read(path)?.into_iter().filter(|r| r.step <= keep).collect() } else { Vec::new() };
        let text: String = kept.iter().map(line).collect();
        precast_fatbins::files::write_whole(path, text.as_bytes()).map_err(Failure::io("write", path))?;
        let file = OpenOptions::new().append(true).open(path).map_err(Failure::io("write", path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub fn push(&mut self, record: &StepRecord) -> Result<(), Failure> {
        self.file.write_all(line(record).as_bytes()).map_err(Failure::io("write", &self.path))
    }
}

fn line(record: &StepRecord) -> String {
    serde_json::to_string(record).expect("a record serialises") + "\n"
}

/// Reads `metrics.jsonl`. A last line cut short by a crash is passed over.
///
/// # Errors
/// [`Failure::Io`].
pub fn read(path: &Path) -> Result<Vec<StepRecord>, Failure> {
    let text = std::fs::read_to_string(path).map_err(Failure::io("read", path))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
