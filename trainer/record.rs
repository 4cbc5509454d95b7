//! `run.json`: what ran, on what, with which bytes.

use std::path::Path;

use precast_fatbins::{Digest, files};
use precast_plan::MemoryTable;
use precast_runtime::{Device, Load};
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::RunConfig;
use crate::data::Dataset;
use crate::error::Failure;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::startup::Startup;

/// The resolved configuration, digests of everything that went in, the device, memory and start-up.
#[derive(Serialize)]
#[serde(transparent)]
pub struct RunRecord(Value);

impl RunRecord {
    /// What is known when the run is sealed.
    pub fn new(config: &RunConfig, session: &Session, dataset: &Dataset) -> Self {
        Self(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "config": config,
            "device": of_device(session.device()),
            "bundle": session.bundle().to_string(),
            "binary": binary_digest().map(|digest| digest.to_string()),
            "data": { "sha256": dataset.digest().to_string(), "chunks": dataset.chunks().len() },
            "loads": session.loaded().iter().map(of_load).collect::<Vec<_>>(),
            "memory": MemoryRecord::of(session),
        }))
    }

    /// Adds the digests of the weights that went in.
    pub fn models(&mut self, [teacher, student]: &[Digest; 2]) {
        self.0["models"] = json!({ "teacher": teacher.to_string(), "student": student.to_string() });
    }

    /// Adds where the time to the end of the first step went.
    pub fn startup(&mut self, startup: &Startup) {
        self.0["startup"] = json!(startup.record());
    }

    /// Adds how it ended.
    pub fn outcome(&mut self, outcome: &Outcome) {
        self.0["outcome"] = json!(outcome);
    }

    /// Writes `run.json`.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub fn write(&self, out: &Path) -> Result<(), Failure> {
        let path = out.join("run.json");
        let text = serde_json::to_string_pretty(self).expect("plain data serialises") + "\n";
        files::write_whole(&path, text.as_bytes()).map_err(Failure::io("write", path))
    }
}

/// A device, in a record.
pub(crate) fn of_device(device: &Device) -> Value {
    json!({
        "name": device.name,
        "ordinal": device.ordinal,
        "arch": device.arch().map(|arch| arch.name()),
        "compute_capability": device.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
        "driver": device.driver_version.map(|(major, minor)| format!("{major}.{minor}")),
        "total_bytes": device.total_bytes,
    })
}

/// A loaded module, in a record.
fn of_load(load: &Load) -> Value {
    json!({
        "key": load.pair.key.to_string(),
        "variant": load.pair.variant.to_string(),
        "sha256": load.digest.map(|digest| digest.to_string()),
        "bytes": load.bytes,
        "microseconds": load.microseconds,
    })
}

/// Device memory of a run.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryRecord {
    /// By the plan.
    pub planned: MemoryTable,
    /// By the driver's own count.
    pub taken_bytes: u64,
}

impl MemoryRecord {
    /// Of a sealed session.
    pub fn of(session: &Session) -> Self {
        Self { planned: MemoryTable::of(&session.plan().plan), taken_bytes: session.taken_bytes() }
    }
}

fn binary_digest() -> Option<Digest> {
    Some(Digest::of(&std::fs::read(std::env::current_exe().ok()?).ok()?))
}
