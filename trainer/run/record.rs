//! `run.json`: what ran, on what, with which bytes.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use precast_core::shell::quoted;
use precast_fatbins::Digest;
use precast_plan::MemoryTable;
use precast_runtime::{CublasUse, Device, Load};
use precast_system::files::Listing;
use precast_system::{files, input};
use serde::Serialize;
use serde_json::{Value, json};

use crate::base::io::IoError;
use crate::base::roles::Models;
use crate::device::session::Session;
use crate::inputs::checkpoint::CheckpointError;
use crate::inputs::data::{Corpus, Summary};
use crate::options::RunConfig;
use crate::run::error::RunError;

/// Its name in a run's output directory.
pub const RECORD: &str = "run.json";

/// The name in it of what its best checkpoint is judged by.
pub const HELD_OUT: &str = "held_out";

/// The names in it of how well the teacher predicts the first batch, and of what is known of one that is not exact.
pub const TEACHER_SCORE: &str = "teacher_score";
pub const TEACHER_CERTIFICATE: &str = "teacher_certificate";

/// The name in it of the cache that the teacher's rows are read from.
pub const TEACHER_CACHE: &str = "teacher_cache";

/// Completions of held-out prompts.
pub const SAMPLES: &str = "samples";

/// The name in it of how much its file of completions held at its last checkpoint.
pub const SAMPLES_WRITTEN: &str = "samples_written";

/// The name in it of how it ended.
pub const OUTCOME: &str = "outcome";

/// The name in it of the largest change of a weight, of what was written last.
pub const LARGEST_UPDATE: &str = "largest_update";

/// The name in it of what its logs hold.
pub const LOGS: &str = "logs";

/// The names in it of the directories of what is trained, each with the step of its weights.
pub const RESULTS: [&str; 4] = ["student", "student.best", "adapter", "adapter.best"];

/// The name in it of what people should know of all its parts.
const NOTES: &str = "notes";

/// Most of them, over however many parts.
const MOST_NOTES: usize = 1024;

/// The resolved configuration, digests of everything that went in, the device, memory and start-up.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct RunRecord(pub Value);

impl RunRecord {
    /// Creates the record of what is known when the run is sealed.
    pub fn new(config: &RunConfig, session: &Session, corpus: &Corpus) -> Self {
        Self(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "config": config.to_json(),
            "device": of_device(session.device()),
            "bundle": session.bundle.to_string(),
            "tuned": session.tuned.map(|digest| digest.to_string()),
            "binary": binary_digest().map(|digest| digest.to_string()),
            "data": { "files": corpus.what() },
            "cublas": session.cublas().map(|CublasUse { version, taken_bytes }| json!({
                "version": version.to_string(), "taken_bytes": taken_bytes,
            })),
            "ranks": session.ranks(),
            "loads": session.loaded().iter().map(of_load).collect::<Vec<_>>(),
            "parameters": { "trained": session.trained_count(), "all": session.all_count() },
            "memory": MemoryRecord::of(session),
        }))
    }

    /// Adds a value under a name; none changes nothing.
    pub fn set(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.0[name] = json!(value);
        }
    }

    /// Adds the digests of the weights that went in.
    pub fn models(&mut self, digests: &Models<Digest>) {
        self.0["models"] = digests.iter().map(|(role, digest)| (role.name(), digest.to_string())).collect();
    }

    /// Adds the digest of the data, once it is known, and what a pass over them comes to, once one has ended.
    pub fn data(&mut self, digest: Option<Digest>, summary: Option<Summary>) {
        if let Some(digest) = digest {
            self.0["data"]["sha256"] = digest.to_string().into();
        }
        if let (Some(summary), Some(data)) = (summary.map(|summary| json!(summary)), self.0["data"].as_object_mut()) {
            data.extend(summary.as_object().cloned().into_iter().flatten());
        }
    }

    /// Begins a part of the run at a step, after the parts of the record of the run so far. `changed` says what is not
    /// as it was in the part before.
    pub fn part(&mut self, step: u64, before: Option<&Value>, changed: &[String]) {
        let mut parts = before.and_then(|before| before.get("parts")?.as_array().cloned()).unwrap_or_default();
        if let Some(last) = parts.last_mut() {
            last["ended_step"] = step.into();
        }
        parts.push(json!({
            "started_step": step,
            "ended_step": step,
            "started_unix_s": unix_s(),
            "ended_unix_s": null,
            "device": self.0["device"],
            "binary": self.0["binary"],
            "bundle": self.0["bundle"],
            "changed": changed,
            "command": command(),
        }));
        self.0["parts"] = parts.into();
        for name in [NOTES].into_iter().chain(RESULTS) {
            self.set(name, before.and_then(|before| before.get(name)));
        }
    }

    /// The part has come to a step from which it can be continued.
    pub fn reached(&mut self, step: u64) {
        if let Some(part) = self.0["parts"].as_array_mut().and_then(|parts| parts.last_mut()) {
            part["ended_step"] = step.into();
            part["ended_unix_s"] = unix_s().into();
        }
    }

    /// Lines of `metrics.jsonl`, and their digest.
    pub fn metrics(&mut self, (lines, digest): (u64, Digest)) {
        self.0["metrics"] = json!({ "lines": lines, "sha256": digest.to_string() });
    }

    /// The checkpoint with the lowest held-out loss.
    pub fn best(&mut self, best: Option<(u64, f64)>) {
        self.set("best", best.map(|(step, loss)| json!({ "step": step, "eval_loss": loss })));
    }

    /// Records that the result is written, under its name, as it is after a step.
    pub fn result(&mut self, name: &str, step: u64) {
        self.0[name] = json!({ "step": step });
    }

    /// Adds notes that it does not have.
    pub fn notes(&mut self, notes: Vec<String>) {
        let mut all = self.0[NOTES].as_array().cloned().unwrap_or_default();
        for note in notes.into_iter().map(Value::from) {
            if all.len() < MOST_NOTES && !all.contains(&note) {
                all.push(note);
            }
        }
        self.0[NOTES] = all.into();
    }

    /// Records what the run writes: files, what they replace for a moment, and the runs that it replaces.
    pub fn files(&mut self, files: &Listing, replacing: &Listing, replaces: &[u64]) {
        let listed = |listing: &Listing| -> Value {
            listing.0.iter().map(|(name, digest)| (name.clone(), Value::from(digest.to_string()))).collect()
        };
        self.0["files"] = listed(files);
        self.0["replacing"] = listed(replacing);
        self.0["replaces"] = json!(replaces);
    }

    /// Writes `run.json`.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write(&self, out: &Path) -> Result<(), IoError> {
        let path = out.join(RECORD);
        let text = serde_json::to_string_pretty(self).expect("plain data serializes") + "\n";
        files::write_whole(&path, text.as_bytes()).map_err(IoError::of("write", path))
    }
}

/// Reads a run's `run.json`.
///
/// # Errors
/// [`RunError`] where it cannot be read.
pub fn read(out: &Path) -> Result<Value, RunError> {
    let path = out.join(RECORD);
    let text = input::read_text(&path, input::SETTINGS_BYTES).map_err(IoError::of("read", &path))?;
    let json = |error: serde_json::Error| CheckpointError::of(&path, error);
    Ok(serde_json::from_str(&text).map_err(json)?)
}

/// Returns the changes of a configuration, a line each.
pub fn changes(before: &Value, config: &RunConfig) -> Vec<String> {
    let now = config.to_json();
    let was = |name: &str| before.pointer(&format!("/config/{name}")).unwrap_or(&Value::Null);
    let values = now.as_object().into_iter().flatten();
    let changed = values.filter(|(name, value)| was(name) != *value);
    let changed = changed.map(|(name, value)| format!("{name} was {}, is {value}", was(name)));
    // An option that may be absent, and is no longer given.
    let ended = ["early_stop", "epochs"].into_iter().filter(|name| !was(name).is_null() && now.get(name).is_none());
    changed.chain(ended.map(|name| format!("{name} was {}, is none", was(name)))).collect()
}

/// The command line of this process, to be pasted into a shell.
fn command() -> String {
    let arguments = std::env::args_os().map(|argument| quoted(&argument.to_string_lossy()));
    arguments.collect::<Vec<_>>().join(" ")
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A device, in a record.
pub(crate) fn of_device(device: &Device) -> Value {
    json!({
        "name": device.name,
        "ordinal": device.ordinal,
        "arch": device.arch().map(|arch| arch.name()),
        "code": device.rows.filter(|rows| rows.launches != rows.code).map(|rows| rows.code.name()),
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
    /// Describes a sealed session.
    pub fn of(session: &Session) -> Self {
        Self { planned: MemoryTable::of(&session.plan.plan), taken_bytes: session.taken_bytes }
    }
}

pub(crate) fn binary_digest() -> Option<Digest> {
    files::digest(&std::env::current_exe().ok()?).ok()
}
