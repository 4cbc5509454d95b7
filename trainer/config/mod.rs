//! The configuration of a run: flags over run.toml over defaults.

mod complete;
mod device;
mod file;
mod flags;
mod options;
mod text;

use std::path::{Path, PathBuf};

use precast_kernels::abi::step_metrics;
use precast_plan::{Objective, Recipe};
use serde::Serialize;
use serde_json::Value;

use crate::models::Models;
use crate::weight_format::WeightFormat;

pub use complete::missing;
pub use device::DeviceChoice;
pub use flags::{All, Flags, FlagsAndFile, Source, Takes, is_of_teacher};
pub use options::{Options, Settings, Teaching};
pub(crate) use text::{display, path_or_none};

/// A run's configuration, complete.
#[derive(Clone, Debug, Serialize)]
pub struct RunConfig {
    /// The model to learn from; none where nobody teaches.
    #[serde(serialize_with = "text::path_or_none", skip_serializing_if = "Option::is_none")]
    pub teacher: Option<PathBuf>,
    /// The model to train.
    #[serde(serialize_with = "text::path")]
    pub student: PathBuf,
    #[serde(serialize_with = "text::paths")]
    pub data: Vec<PathBuf>,
    /// Where results go.
    #[serde(serialize_with = "text::path")]
    pub out: PathBuf,
    /// What is minimised; with a teacher just where there is one.
    #[serde(flatten)]
    pub objective: Objective,
    /// How the teacher's weights live on the device; none where nobody teaches.
    #[serde(serialize_with = "text::display_or_none", skip_serializing_if = "Option::is_none")]
    pub teacher_format: Option<WeightFormat>,
    /// Whether the student may be its teacher.
    pub allow_identical: bool,
    #[serde(flatten)]
    pub settings: Settings,
}

impl RunConfig {
    /// By the options' names, as a record holds it.
    pub fn to_json(&self) -> Value {
        // As text first: 0.1 in f32 is 0.1, and would be 0.10000000149011612 as a `Value` of its own.
        let text = serde_json::to_string(self).expect("plain data serialises");
        serde_json::from_str(&text).expect("JSON reads back")
    }

    /// The files and directories that a run reads.
    pub fn inputs(&self) -> Vec<&Path> {
        let kernels = &self.settings.kernels;
        let models = self.teacher.iter().chain([&self.student]).chain(&self.data).chain(&kernels.bundle);
        let keys = kernels.trusted_key.iter().map(Path::new).filter(|key| key.exists());
        models.map(PathBuf::as_path).chain(keys).collect()
    }

    /// Where the models are.
    pub fn models(&self) -> Models<&Path> {
        Models { teacher: self.teacher.as_deref(), student: &self.student }
    }

    /// The loss of a step, nats.
    pub fn loss(&self, metrics: &step_metrics) -> f64 {
        self.objective.loss(metrics.kd_loss.into(), metrics.ce_loss.into())
    }

    /// What the plan follows from.
    pub fn recipe(&self) -> Recipe {
        let Settings { batch_size, seq_len, precision, weight_decay, clip, recompute, .. } = self.settings;
        Recipe { batch: batch_size, seq_len, precision, objective: self.objective, weight_decay, clip, recompute }
    }
}

#[cfg(test)]
mod tests;
