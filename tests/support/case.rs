//! A scratch directory with what a run takes, and commands in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use precast::run::gpu::GpuRecord;
use precast::run::metrics::Metrics;
use precast::run::rollout::RolloutRecord;
use precast::run::step::StepRecord;
use serde_json::Value;

use crate::golden_weights;

use super::{
    Process, Texts, copy, device_for, fixture, on_device, precast, precast_aot, random_model, tiny_config, token_file,
};

/// What a run takes, in a scratch directory of its own: two tiny models with different weights, and token ids.
pub struct Case {
    pub dir: tempfile::TempDir,
    pub teacher: PathBuf,
    pub student: PathBuf,
    pub data: PathBuf,
}

impl Case {
    /// Two models of one shape, and a file of `tokens` ids.
    pub fn new(tokens: u32) -> Self {
        Self::of([&tiny_config(&[]), &tiny_config(&[])], tokens)
    }

    /// Two models of so many layers.
    pub fn of_layers(layers: u32, tokens: u32) -> Self {
        let config = tiny_config(&[("num_hidden_layers", layers.into())]);
        Self::of([&config, &config], tokens)
    }

    /// The same of a teacher's and a student's configuration, both of 96 tokens at least.
    pub fn of([teacher, student]: [&Value; 2], tokens: u32) -> Self {
        let case = Self::empty();
        random_model(case.dir.path(), "teacher", 1, teacher);
        random_model(case.dir.path(), "student", 2, student);
        token_file(case.dir.path(), "data.bin", tokens, 96);
        case
    }

    /// A directory in which a test puts all that it has.
    pub fn empty() -> Self {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let [teacher, student, data] = ["teacher", "student", "data.bin"].map(|name| dir.path().join(name));
        Self { dir, teacher, student, data }
    }

    /// The models and data of a golden case, which are in `golden`.
    pub fn golden(name: &str) -> Self {
        golden_weights::placed(&fixture("golden").join(name))
    }

    /// Writes a model of random weights: the tiny one, changed.
    pub fn model(&self, name: &str, seed: u64, changes: &[(&str, Value)]) -> PathBuf {
        random_model(self.dir.path(), name, seed, &tiny_config(changes))
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where most runs go.
    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), bytes).expect("a scratch directory is writable");
        self.path(name)
    }

    pub fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a file")
    }

    pub fn text(&self, name: impl AsRef<Path>) -> String {
        String::from_utf8(self.read(name)).expect("UTF-8")
    }

    pub fn json(&self, name: impl AsRef<Path>) -> Value {
        serde_json::from_slice(&self.read(name)).expect("JSON")
    }

    /// Writes a file of JSON, changed.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut json = self.json(name);
        change(&mut json);
        self.write(name, json.to_string());
    }

    /// Makes a FIFO, whose reader would wait for somebody to write.
    pub fn fifo(&self, name: impl AsRef<Path>) {
        super::succeed(Command::new("mkfifo").arg(self.path(name)));
    }

    pub fn names(&self, name: impl AsRef<Path>) -> Vec<String> {
        names_in(&self.path(name))
    }

    /// The `run.json` of a run.
    pub fn record(&self, out: impl AsRef<Path>) -> Value {
        run_record(&self.path(out))
    }

    pub fn metrics(&self, out: impl AsRef<Path>) -> Vec<StepRecord> {
        metrics_of(&self.path(out))
    }

    /// The loss of each step of a run.
    pub fn losses(&self, out: impl AsRef<Path>) -> Vec<f64> {
        self.metrics(out).iter().map(|step| step.loss.expect("a finite loss")).collect()
    }

    /// The weights that a run has trained, as their file has them.
    pub fn weights(&self, out: impl AsRef<Path>) -> Vec<u8> {
        self.read(self.path(out).join("student/model.safetensors"))
    }

    /// As [`results`] of a run.
    pub fn results(&self, out: impl AsRef<Path>) -> (Vec<u8>, Vec<StepRecord>) {
        results(&self.path(out))
    }

    /// Losses, norm and tokens of each step to the bit, and the weights or the adapter that they come to.
    pub fn bits(&self, out: impl AsRef<Path>) -> (Vec<[u64; 5]>, Vec<u8>) {
        let bits = |value: Option<f64>| value.expect("a finite number").to_bits();
        let of = |s: &StepRecord| {
            let [loss, kd, ce, norm] = [s.loss, s.kd_loss, s.ce_loss, s.grad_norm].map(bits);
            [loss, kd, ce, norm, s.tokens]
        };
        (self.metrics(&out).iter().map(of).collect(), trained(&self.path(out)))
    }

    /// A text without the directory's name.
    pub fn anonymous(&self, text: &str) -> String {
        text.replace(&self.dir.path().display().to_string(), "DIR")
    }

    /// A command line of `precast` in the directory, with the device under test where it computes and names no other.
    pub fn run(&self, line: impl Texts) -> Command {
        let (words, mut command) = (line.words(), precast());
        command.current_dir(self.dir.path()).args(&words).args(device_for(&words));
        command
    }

    /// A command line of `precast-aot` in the directory, with the checkout's toolchain and caches.
    pub fn aot(&self, line: impl Texts) -> Command {
        let mut command = precast_aot();
        command.env("PRECAST_HOME", precast_aot::home::directory());
        command.current_dir(self.dir.path()).with(line);
        command
    }

    /// `precast distill` of two rows of 16 tokens a step; what the arguments name is theirs, and a cache stands for the
    /// teacher.
    pub fn distill(&self, out: impl AsRef<Path>, arguments: impl Texts) -> Command {
        let models = [("--teacher", &self.teacher), ("--student", &self.student), ("--data", &self.data)];
        self.steps("distill", &models, out.as_ref(), arguments)
    }

    /// `precast train` of the student, in the same way.
    pub fn train(&self, out: impl AsRef<Path>, arguments: impl Texts) -> Command {
        self.steps("train", &[("--model", &self.student), ("--data", &self.data)], out.as_ref(), arguments)
    }

    fn steps(&self, name: &str, inputs: &[(&str, &PathBuf)], out: &Path, arguments: impl Texts) -> Command {
        let words = arguments.words();
        let mut command = precast();
        command.arg(name).args(on_device()).current_dir(self.dir.path()).arg("--out").arg(self.path(out));
        let cached = if words.contains(&"--teacher-cache") { "--teacher" } else { "" };
        for (flag, path) in inputs.iter().filter(|(flag, _)| !words.contains(flag) && *flag != cached) {
            command.arg(flag).arg(path);
        }
        for (flag, size) in [("--batch-size", "2"), ("--seq-len", "16")] {
            if !words.contains(&flag) {
                command.args([flag, size]);
            }
        }
        command.args(words);
        command
    }

    /// A copy of the student in which one file is another.
    pub fn student_with(&self, name: &str, file: &str, bytes: &[u8]) -> PathBuf {
        let model = self.path(name);
        copy(&self.student, &model);
        std::fs::write(model.join(file), bytes).expect("a scratch directory is writable");
        model
    }
}

/// The weights or the adapter of a run, and its steps without what depends on the clock and on memory.
pub fn results(out: &Path) -> (Vec<u8>, Vec<StepRecord>) {
    let untimed = |rollouts| RolloutRecord { rollout_s: 0.0, rollout_tokens_per_s: 0.0, ..rollouts };
    let timeless = |record: StepRecord| StepRecord {
        step_ms: 0.0,
        tokens_per_s: 0.0,
        row_tokens_per_s: None,
        memory_bytes: 0,
        gpu: GpuRecord::default(),
        rollouts: record.rollouts.map(untimed),
        ..record
    };
    (trained(out), metrics_of(out).into_iter().map(timeless).collect())
}

fn trained(out: &Path) -> Vec<u8> {
    let files = ["student/model.safetensors", "adapter/adapter_model.safetensors"].map(|name| out.join(name));
    std::fs::read(files.iter().find(|path| path.exists()).expect("something has trained")).expect("a file")
}

/// The metrics of a run.
pub fn metrics_of(out: &Path) -> Vec<StepRecord> {
    Metrics::read(&out.join("metrics.jsonl")).expect("metrics.jsonl is written").records
}

/// The `run.json` of a run.
pub fn run_record(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("run.json")).expect("run.json is written"))
        .expect("run.json is JSON")
}

/// The fields of a line of metrics.jsonl that say what the GPU did: as times, they are no part of what is trained.
pub const GPU_FIELDS: [&str; 6] =
    ["power_w", "sm_clock_mhz", "slowest_sm_clock_mhz", "temperature_c", "gpu_busy_percent", "throttle"];

/// What is in a directory, by name.
pub fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// Every file below a directory with its bytes.
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(contents(&entry.path())),
            kind if kind.is_symlink() => {
                all.push((
                    entry.path(),
                    std::fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes(),
                ));
            }
            _ => all.push((entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    all.sort();
    all
}
