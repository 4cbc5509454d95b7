//! `run.json`: what ran, on what, with which bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use itertools::Itertools;
use precast_core::shell::quoted;
use precast_fatbins::Digest;
use precast_plan::MemoryTable;
use precast_runtime::{CublasUse, Device, Load};
use precast_system::{files, input};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::base::io::IoError;
use crate::base::roles::{Models, Role};
use crate::base::startup_times::StartupRecord;
use crate::device::session::Session;
use crate::inputs::checkpoint::CheckpointError;
use crate::inputs::data::{Corpus, Summary};
use crate::inputs::hub::Snapshot;
use crate::inputs::teacher_cache::CacheRecord;
use crate::options::RunConfig;
use crate::run::certificate::Measured;
use crate::run::error::RunError;
use crate::run::gpu::Limits;
use crate::run::guard::GuardRecord;
use crate::run::log::Written;
use crate::run::outcome::Outcome;
use crate::run::sample::SampleRecord;
use crate::run::samples_file::Extent;

/// Its name in a run's output directory.
pub const RECORD: &str = "run.json";

/// The directories of what is trained.
pub const RESULTS: [&str; 4] = ["student", "student.best", "adapter", "adapter.best"];

/// Most notes of a run, over however many parts.
const MOST_NOTES: usize = 1024;

/// The resolved configuration, digests of everything that went in, the device, memory and start-up. What no program
/// reads back is JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    pub version: String,
    /// Values of options, by their names.
    pub config: Map<String, Value>,
    pub device: DeviceRecord,
    pub bundle: String,
    /// Digest of the table that selects variants, if the run has one of its own.
    pub tuned: Option<Digest>,
    pub binary: Option<Digest>,
    pub data: DataRecord,
    pub cublas: Value,
    pub ranks: Option<String>,
    pub loads: Vec<LoadRecord>,
    pub parameters: Option<ParameterCounts>,
    pub memory: Value,
    pub models: BTreeMap<String, Digest>,
    /// Those that are snapshots of Hugging Face's cache.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub snapshots: BTreeMap<String, Snapshot>,
    /// From its start, and from each resume on.
    pub parts: Vec<PartRecord>,
    /// Notes for people on all its parts.
    pub notes: Vec<String>,
    pub metrics: Option<MetricsRecord>,
    /// The checkpoint with the lowest held-out loss, and what that is judged by.
    pub best: Option<BestRecord>,
    pub held_out: Option<Since>,
    /// Of a teacher without a name, as [`TeacherRecord`] has them.
    pub teacher_score: Option<TeacherScore>,
    pub teacher_certificate: Option<Known<TeacherCertificate>>,
    pub teacher_cache: Option<Known<CacheRecord>>,
    /// Teachers by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub teachers: BTreeMap<String, TeacherRecord>,
    /// Completions of held-out prompts.
    pub samples: Option<Vec<SampleRecord>>,
    /// Extent of its file of completions at its last checkpoint.
    pub samples_written: Option<Extent>,
    /// Files that the run writes, what they replace for a moment, and the runs that it replaces.
    pub files: Option<BTreeMap<String, Digest>>,
    pub replacing: BTreeMap<String, Digest>,
    pub replaces: Vec<u64>,
    /// Contents of its logs.
    pub logs: Option<BTreeMap<String, Written>>,
    pub gpu: Option<Limits>,
    pub startup: Value,
    pub waited_ms_a_step: Option<f64>,
    pub guard: Option<GuardRecord>,
    /// The largest change of a weight, of what was written last.
    pub largest_update: Option<f64>,
    pub outcome: Option<Outcome>,
    /// By its directory's name, the step of each result's weights; and what a later version has written.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRecord {
    pub name: String,
    pub ordinal: String,
    /// Architecture whose launches it runs.
    pub arch: Option<String>,
    /// That of the code, where it is another.
    pub code: Option<String>,
    pub compute_capability: Option<String>,
    pub driver: Option<String>,
    pub total_bytes: u64,
}

/// Training data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataRecord {
    pub files: Option<String>,
    /// Once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    /// Summary of a pass, once one has ended.
    #[serde(flatten)]
    pub pass: Map<String, Value>,
}

/// A loaded module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadRecord {
    pub key: String,
    pub variant: String,
    pub sha256: Option<Digest>,
    pub bytes: u64,
    pub microseconds: u64,
}

/// Numbers of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterCounts {
    pub trained: u64,
    pub all: u64,
}

/// A part of a run, from a start or resume to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartRecord {
    pub started_step: u64,
    /// The last step from which it can be continued.
    pub ended_step: u64,
    pub started_unix_s: u64,
    pub ended_unix_s: Option<u64>,
    pub device: DeviceRecord,
    pub binary: Option<Digest>,
    pub bundle: String,
    /// Changes since the part before.
    pub changed: Vec<String>,
    /// To be pasted into a shell.
    pub command: String,
}

/// Lines of `metrics.jsonl`, and their digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsRecord {
    pub lines: u64,
    pub sha256: Digest,
}

/// The best checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestRecord {
    pub step: u64,
    pub eval_loss: f64,
}

/// Data and steps that held-out losses are of: those of other data do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    pub sha256: Digest,
    /// Those behind it.
    pub after_step: u64,
}

/// Quality of a teacher's predictions of the tokens of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TeacherScore {
    /// Its cross entropy over the student's vocabulary, at temperature 1, nats a token; none where that is not finite.
    pub nll: Option<f64>,
    /// That of guessing among all tokens of that vocabulary alike, nats.
    pub uniform_nll: f64,
    /// Tokens that count.
    pub tokens: u64,
    /// The reason why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Rows of the experts of a teacher that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertRows>,
}

/// Rows that the experts of the last layer read of a micro-batch, as its router divides them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertRows {
    /// Rows of the expert with the fewest.
    pub least: u64,
    /// Rows of the expert with the most.
    pub most: u64,
    /// Rows of all.
    pub rows: u64,
    /// Experts that have weights.
    pub experts: u64,
}

impl ExpertRows {
    /// Summarizes the rows of each expert.
    pub fn of(rows: &[u64]) -> Option<Self> {
        let (least, most) = rows.iter().copied().minmax().into_option()?;
        Some(Self { least, most, rows: rows.iter().sum(), experts: rows.len() as u64 })
    }
}

impl fmt::Display for ExpertRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most, rows, experts } = self;
        // A record may say anything.
        let average = rows.checked_div(*experts).unwrap_or(0);
        write!(f, "{least} to {most} of {rows} each, {average} on average, in the last layer")
    }
}

/// Knowledge of a teacher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TeacherRecord {
    /// On the first batch.
    pub score: Option<TeacherScore>,
    /// Of one that is not exact.
    pub certificate: Option<Known<TeacherCertificate>>,
    /// The cache that its rows are read from.
    pub cache: Option<Known<CacheRecord>>,
}

/// Names a model of a run in its record.
fn of_role(config: &RunConfig, role: Role) -> String {
    match role {
        Role::Teacher(number) => config.teachers[number].role(),
        Role::Student => role.name().to_owned(),
    }
}

/// A teacher that is not exact, and what that costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TeacherCertificate {
    pub format: String,
    pub kernels_sha256: Option<Digest>,
    pub measured: Measured,
    pub by: Option<CertifiedBy>,
}

/// Source of that knowledge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CertifiedBy {
    Text(String),
    File {
        file: String,
        #[serde(flatten)]
        content: Map<String, Value>,
    },
}

/// A part of a record that another version may have written otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Known<T> {
    Known(T),
    Unknown(Value),
}

impl<T> Known<T> {
    /// Returns it, if this version can read it.
    pub fn known(&self) -> Option<&T> {
        if let Self::Known(known) = self { Some(known) } else { None }
    }
}

impl RunRecord {
    /// Creates the record of what is known when the run is sealed.
    pub fn new(config: &RunConfig, session: &Session, corpus: &Corpus) -> Self {
        let models = config.models();
        let snapshots = models.iter().filter_map(|(role, path)| Some((of_role(config, role), Snapshot::of(path)?)));
        let snapshots = snapshots.collect();
        let Value::Object(config) = config.to_json() else { unreachable!("a configuration has names") };
        let cublas = |CublasUse { version, taken_bytes }: CublasUse| {
            json!({ "version": version.to_string(),
            "taken_bytes": taken_bytes })
        };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config,
            snapshots,
            device: DeviceRecord::of(session.device()),
            bundle: session.bundle.to_string(),
            tuned: session.tuned,
            binary: binary_digest(),
            data: DataRecord { files: Some(corpus.what()), ..DataRecord::default() },
            cublas: session.cublas().map(cublas).unwrap_or_default(),
            ranks: session.ranks(),
            loads: session.loaded().iter().map(LoadRecord::of).collect(),
            parameters: Some(ParameterCounts { trained: session.trained_count(), all: session.all_count() }),
            memory: json!(MemoryRecord::of(session)),
            ..Self::default()
        }
    }

    /// Adds the digests of the weights that went in.
    pub fn models(&mut self, digests: &Models<Digest>, config: &RunConfig) {
        self.models = digests.iter().map(|(role, digest)| (of_role(config, role), *digest)).collect();
    }

    /// Returns what is known of a teacher.
    pub fn teacher(&self, name: Option<&str>) -> TeacherRecord {
        match name {
            Some(name) => self.teachers.get(name).cloned().unwrap_or_default(),
            None => TeacherRecord {
                score: self.teacher_score.clone(),
                certificate: self.teacher_certificate.clone(),
                cache: self.teacher_cache.clone(),
            },
        }
    }

    /// Adds what is known of a teacher.
    pub fn add_teacher(&mut self, name: Option<&str>, teacher: TeacherRecord) {
        match name {
            Some(name) => _ = self.teachers.insert(name.to_owned(), teacher),
            None => {
                let TeacherRecord { score, certificate, cache } = teacher;
                (self.teacher_score, self.teacher_certificate, self.teacher_cache) = (score, certificate, cache);
            }
        }
    }

    /// Adds the digest of the data, once it is known, and what a pass over them comes to, once one has ended.
    pub fn data(&mut self, digest: Option<Digest>, summary: Option<Summary>) {
        self.data.sha256 = digest.or(self.data.sha256);
        if let Some(Value::Object(pass)) = summary.map(|summary| json!(summary)) {
            self.data.pass = pass;
        }
    }

    /// Begins a part of the run at a step, after the parts of the record of the run so far. `changed` says what is not
    /// as it was in the part before.
    pub fn part(&mut self, step: u64, before: Option<&Self>, changed: &[String]) {
        if let Some(before) = before {
            (self.parts, self.notes) = (before.parts.clone(), before.notes.clone());
            let results = before.others.iter().filter(|(name, _)| RESULTS.contains(&name.as_str()));
            self.others.extend(results.map(|(name, value)| (name.clone(), value.clone())));
        }
        self.parts.iter_mut().last().into_iter().for_each(|last| last.ended_step = step);
        self.parts.push(PartRecord {
            started_step: step,
            ended_step: step,
            started_unix_s: unix_s(),
            ended_unix_s: None,
            device: self.device.clone(),
            binary: self.binary,
            bundle: self.bundle.clone(),
            changed: changed.to_vec(),
            command: command(),
        });
    }

    /// The part has come to a step from which it can be continued.
    pub fn reached(&mut self, step: u64) {
        if let Some(part) = self.parts.last_mut() {
            (part.ended_step, part.ended_unix_s) = (step, Some(unix_s()));
        }
    }

    /// Lines of `metrics.jsonl`, and their digest.
    pub fn metrics(&mut self, (lines, sha256): (u64, Digest)) {
        self.metrics = Some(MetricsRecord { lines, sha256 });
    }

    /// The checkpoint with the lowest held-out loss.
    pub fn best(&mut self, best: Option<(u64, f64)>) {
        self.best = best.map(|(step, eval_loss)| BestRecord { step, eval_loss }).or(self.best);
    }

    /// Records that the result is written, under its name, as it is after a step.
    pub fn result(&mut self, name: &str, step: u64) {
        self.others.insert(name.to_owned(), json!(Step { step }));
    }

    /// Returns the step whose weights a result has; none of one that is not written.
    pub fn result_step(&self, name: &str) -> Option<u64> {
        Step::deserialize(self.others.get(name)?).ok().map(|result| result.step)
    }

    /// Adds notes that it does not have.
    pub fn notes(&mut self, notes: Vec<String>) {
        for note in notes {
            if self.notes.len() < MOST_NOTES && !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// Adds start-up times.
    pub fn startup(&mut self, startup: &StartupRecord) {
        self.startup = json!(startup);
    }

    /// Returns its JSON, without what is not known.
    pub fn to_json(&self) -> Value {
        let mut json = json!(self);
        json.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
        json
    }

    /// Writes `run.json`.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write(&self, out: &Path) -> Result<(), IoError> {
        let path = out.join(RECORD);
        let text = serde_json::to_string_pretty(&self.to_json()).expect("plain data serializes") + "\n";
        files::write_whole(&path, text.as_bytes()).map_err(IoError::of("write", path))
    }

    /// Reads a run's `run.json`.
    ///
    /// # Errors
    /// [`RunError`] where it cannot be read.
    pub fn read(out: &Path) -> Result<Self, RunError> {
        let path = out.join(RECORD);
        let text = input::read_text(&path, input::SETTINGS_BYTES).map_err(IoError::of("read", &path))?;
        Ok(serde_json::from_str(&text).map_err(|error| CheckpointError::of(&path, error))?)
    }

    /// Returns the changes of a configuration, a line each.
    pub fn changes(&self, config: &RunConfig) -> Vec<String> {
        let now = config.to_json();
        let was = |name: &str| self.config.get(name).unwrap_or(&Value::Null);
        let values = now.as_object().into_iter().flatten();
        // Another packing is refused, and an older run names none.
        let changed = values.filter(|(name, value)| was(name) != *value && name.as_str() != "packing");
        let changed = changed.map(|(name, value)| format!("{name} was {}, is {value}", was(name)));
        // An option that may be absent, and is no longer given.
        let ended = ["early_stop", "epochs"].into_iter().filter(|name| !was(name).is_null() && now.get(name).is_none());
        changed.chain(ended.map(|name| format!("{name} was {}, is none", was(name)))).collect()
    }
}

/// A result of a run.
#[derive(Serialize, Deserialize)]
struct Step {
    step: u64,
}

/// The command line of this process, to be pasted into a shell.
fn command() -> String {
    let arguments = std::env::args_os().map(|argument| quoted(&argument.to_string_lossy()));
    arguments.collect::<Vec<_>>().join(" ")
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl DeviceRecord {
    /// Describes a device.
    pub fn of(device: &Device) -> Self {
        let version = |(major, minor)| format!("{major}.{minor}");
        let code = device.rows.filter(|rows| rows.launches != rows.code).map(|rows| rows.code.name().to_owned());
        Self {
            name: device.name.clone(),
            ordinal: device.ordinal.clone(),
            arch: device.arch().map(|arch| arch.name().to_owned()),
            code,
            compute_capability: device.compute_capability.map(version),
            driver: device.driver_version.map(version),
            total_bytes: device.total_bytes,
        }
    }
}

impl LoadRecord {
    fn of(load: &Load) -> Self {
        let (key, variant) = (load.pair.key.to_string(), load.pair.variant.to_string());
        Self { key, variant, sha256: load.digest, bytes: load.bytes, microseconds: load.microseconds }
    }
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

/// Returns the digest of this program's file, which is read once.
pub(crate) fn binary_digest() -> Option<Digest> {
    static OWN: LazyLock<Option<Digest>> = LazyLock::new(|| files::digest(&std::env::current_exe().ok()?).ok());
    *OWN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_version_is_kept_whole_or_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(dir.path().join(RECORD), text).unwrap();
            RunRecord::read(dir.path())
        };
        let record =
            read(r#"{ "files": {}, "student": { "step": 3 }, "teacher_cache": { "rows": "many" }, "later": [1] }"#);
        let record = record.unwrap();
        assert_eq!(
            (record.result_step("student"), record.teacher_cache.as_ref().and_then(Known::known)),
            (Some(3), None)
        );
        record.write(dir.path()).unwrap();
        assert_eq!(RunRecord::read(dir.path()).unwrap(), record);
        assert_eq!(
            (&record.others["later"], &record.to_json()["teacher_cache"]["rows"]),
            (&json!([1]), &json!("many"))
        );
        let refused = read(r#"{ "replaces": "some" }"#).unwrap_err().to_string();
        assert!(refused.contains("run.json") && refused.contains("expected a sequence"), "{refused}");
    }

    #[test]
    fn rows_of_no_experts_are_written_out() {
        let rows = ExpertRows { least: 0, most: 0, rows: 9, experts: 0 };
        assert_eq!(rows.to_string(), "0 to 0 of 9 each, 0 on average, in the last layer");
    }
}
