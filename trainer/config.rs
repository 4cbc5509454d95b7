//! The configuration of a run: flags over `run.toml` over defaults.

use std::path::{Path, PathBuf};

use clap::Args;
use precast_kernels::abi::step_metrics;
use precast_plan::{Objective, Precision, Recipe, Recompute};
use serde::{Deserialize, Serialize};

use crate::bundle::Kernels;
use crate::disguise::read_text;
use crate::error::Failure;
use crate::models::Models;
use crate::schedule::Schedule;
use crate::weight_format::WeightFormat;

/// What may be given on the command line or in `run.toml`, under the same names.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The model to learn from: a Hugging Face directory or a .gguf file
    #[arg(long, value_name = "PATH")]
    pub teacher: Option<PathBuf>,
    /// The model to train: a Hugging Face directory or a .gguf file (make one with `precast init`)
    #[arg(long, value_name = "PATH")]
    pub student: Option<PathBuf>,
    /// The model to train without a teacher, in place of --teacher and --student: a Hugging Face directory or a .gguf file
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Training data: .bin (u32 token ids), .txt, or .jsonl with a line each of {"text": ...} or of
    /// {"input_ids": [...], "labels": [...]}, a sequence by itself whose labels of -100 do not count; repeatable
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// Where checkpoints, metrics, report and the trained student go: a new or empty directory, unless --resume or
    /// --overwrite is given
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Optimizer steps [default: 1000]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Sequences in a micro-batch [default: 8]
    #[arg(long, value_name = "B")]
    pub batch_size: Option<u32>,
    /// Tokens in a sequence [default: 1024]
    #[arg(long, value_name = "S")]
    pub seq_len: Option<u32>,
    /// Micro-batches in a step [default: 1]
    #[arg(long, value_name = "A")]
    pub grad_accum: Option<u32>,
    /// Peak learning rate [default: 1e-4]
    #[arg(long, value_name = "X")]
    pub lr: Option<f64>,
    /// Steps over which the learning rate rises [default: 0]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u64>,
    /// Learning rate after warm-up: constant or cosine [default: constant]
    #[arg(long, value_name = "SHAPE")]
    pub schedule: Option<Schedule>,
    /// Decoupled weight decay of matrices [default: 0.01]
    #[arg(long, value_name = "X")]
    pub weight_decay: Option<f32>,
    /// Largest gradient norm; 0 for none [default: 1]
    #[arg(long, value_name = "X")]
    pub clip: Option<f32>,
    /// Weight of the teacher's term in the loss, 0 to 1 [default: 0.5]
    #[arg(long, value_name = "X")]
    pub alpha: Option<f32>,
    /// Distillation temperature [default: 2]
    #[arg(long, value_name = "X")]
    pub temperature: Option<f32>,
    /// How the teacher's weights live on the device, at the same bits: bf16 (the run's precision), stored (matrices as a GGUF
    /// file holds them, each dequantised just before its product) or auto (bf16 where that fits into the device's memory, else
    /// stored) [default: auto]
    #[arg(long, value_name = "FORM")]
    #[serde(with = "as_text")]
    pub teacher_format: Option<WeightFormat>,
    /// Divergence of the teacher's term, t of teacher and s of student: 0 is KL(t || s), 1 is KL(s || t), and between them is
    /// beta KL(t || m) + (1 - beta) KL(s || m) with m = beta t + (1 - beta) s [default: 0]
    #[arg(long, value_name = "X")]
    pub beta: Option<f32>,
    /// What the backward pass recomputes instead of keeping it, for less memory at the same bits: none, norms (the bare
    /// flag; SwiGLU too) or blocks (all but the residual stream) [default: none]
    #[arg(long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "norms")]
    #[serde(with = "as_text")]
    pub recompute: Option<Recompute>,
    /// Arithmetic: fp32 or bf16 [default: bf16]
    #[arg(long, value_name = "P")]
    #[serde(with = "as_text")]
    pub precision: Option<Precision>,
    /// Seed of the shuffle [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Train on chunks in a new random order each pass [default: false]
    #[arg(long, value_name = "BOOL")]
    pub shuffle: Option<bool>,
    /// auto, cuda:N, sim, or portable:N: cuda:N with the kernels that every architecture has [default: auto: the
    /// first GPU; sim where there is neither a GPU nor kernels for one]
    #[arg(long, value_name = "DEVICE")]
    #[serde(with = "as_text")]
    pub device: Option<DeviceChoice>,
    /// Kernels to use instead of the embedded ones
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// Refuse a --bundle that this minisign key did not sign: base64 or a .pub file; repeatable [default: the keys in
    /// $PRECAST_TRUSTED_KEY, separated by blanks]
    #[arg(long, value_name = "KEY")]
    pub trusted_key: Vec<String>,
    /// Allow a student with the same weights as its teacher [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub allow_identical: Option<bool>,
    /// Steps between checkpoints that --resume continues from; 0 for none [default: 500, and at the end]
    #[arg(long, value_name = "N")]
    pub checkpoint_every: Option<u64>,
    /// How many checkpoints to keep, the latest [default: 1]
    #[arg(long, value_name = "N")]
    pub keep: Option<u64>,
}

/// Which device to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU; the simulated one where there is neither a GPU nor kernels for one.
    Auto,
    /// A GPU by number.
    Cuda(u32),
    /// A GPU by number, with the portable kernels, those that every architecture has, and none of its own.
    Portable(u32),
    /// The simulated GPU.
    Sim,
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceChoice::Portable(ordinal) => write!(f, "portable:{ordinal}"),
            DeviceChoice::Sim => f.write_str("sim"),
        }
    }
}

impl std::str::FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "sim" => Ok(DeviceChoice::Sim),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            other => match other.split_once(':').map(|(kind, ordinal)| (kind, ordinal.parse())) {
                Some(("cuda", Ok(ordinal))) => Ok(DeviceChoice::Cuda(ordinal)),
                Some(("portable" | "generic", Ok(ordinal))) => Ok(DeviceChoice::Portable(ordinal)),
                _ => Err(format!("unknown device `{text}`: auto, cuda:N, portable:N or sim")),
            },
        }
    }
}

/// Values that run.toml holds as the text the command line takes, or as true or false.
mod as_text {
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer};

    pub fn deserialize<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        let value = Option::<Value>::deserialize(from)?;
        let text = value.map(|value| match value {
            Value::Bool(value) => value.to_string(),
            Value::Text(text) => text,
        });
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected text")]
    enum Value {
        Bool(bool),
        Text(String),
    }
}

/// A run's configuration, complete.
#[derive(Clone, Debug, Serialize)]
pub struct RunConfig {
    /// The model to learn from; none where nobody teaches.
    #[serde(serialize_with = "path_or_none", skip_serializing_if = "Option::is_none")]
    pub teacher: Option<PathBuf>,
    /// The model to train.
    #[serde(serialize_with = "path")]
    pub student: PathBuf,
    #[serde(serialize_with = "paths")]
    pub data: Vec<PathBuf>,
    /// Where results go.
    #[serde(serialize_with = "path")]
    pub out: PathBuf,
    pub steps: u64,
    /// Sequences in a micro-batch.
    pub batch_size: u32,
    /// Tokens in a sequence.
    pub seq_len: u32,
    /// Micro-batches in a step.
    pub grad_accum: u32,
    /// Peak learning rate.
    pub lr: f64,
    /// Steps of warm-up.
    pub warmup: u64,
    /// Learning rate after it.
    pub schedule: Schedule,
    /// Weight decay of matrices.
    pub weight_decay: f32,
    /// Largest gradient norm; 0 for none.
    pub clip: f32,
    /// What is minimised; with a teacher just where there is one.
    #[serde(flatten)]
    pub objective: Objective,
    /// How the teacher's weights live on the device; none where nobody teaches.
    #[serde(serialize_with = "display_or_none", skip_serializing_if = "Option::is_none")]
    pub teacher_format: Option<WeightFormat>,
    /// What the backward pass recomputes.
    #[serde(serialize_with = "display")]
    pub recompute: Recompute,
    /// Arithmetic.
    #[serde(serialize_with = "display")]
    pub precision: Precision,
    /// Seed of the shuffle.
    pub seed: u64,
    /// Whether chunks are shuffled.
    pub shuffle: bool,
    #[serde(serialize_with = "display")]
    pub device: DeviceChoice,
    /// Kernels to use instead of the embedded ones.
    #[serde(serialize_with = "path_or_none")]
    pub bundle: Option<PathBuf>,
    /// Whose bundles may be used.
    pub trusted_key: Vec<String>,
    /// Whether the student may be its teacher.
    pub allow_identical: bool,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// Checkpoints to keep.
    pub keep: u64,
}

/// Bias corrections raise to the power of the step, which has 31 bits there.
const MOST_STEPS: u64 = i32::MAX as u64;
/// Micro-batches of a step: far more than a step of a week has.
const MOST_MICRO_BATCHES: u64 = 1 << 20;
/// Temperatures whose squares and inverses an fp32 loss can hold.
const TEMPERATURES: std::ops::RangeInclusive<f32> = 1e-3..=1e3;

/// A path as people read it: one that is not UTF-8 has no other text.
fn path<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

fn paths<S: serde::Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.display().to_string()))
}

fn path_or_none<S: serde::Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(to)
}

/// A value as its text.
pub(crate) fn display<S: serde::Serializer>(value: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn display_or_none<S: serde::Serializer>(value: &Option<impl std::fmt::Display>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

impl Options {
    /// Reads `run.toml`.
    ///
    /// # Errors
    /// [`Failure::Usage`] that names the line.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let unreadable = |error| Failure::Usage(format!("--config {}: cannot read it: {error}", path.display()));
        let text = read_text(path).map_err(unreadable)?;
        toml::from_str(&text).map_err(|error| Failure::Usage(format!("--config {}: {error}", path.display())))
    }

    /// These options where they are given, and those of `file` elsewhere.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        Self {
            teacher: self.teacher.or(file.teacher),
            student: self.student.or(file.student),
            model: self.model.or(file.model),
            data: if self.data.is_empty() { file.data } else { self.data },
            out: self.out.or(file.out),
            steps: self.steps.or(file.steps),
            batch_size: self.batch_size.or(file.batch_size),
            seq_len: self.seq_len.or(file.seq_len),
            grad_accum: self.grad_accum.or(file.grad_accum),
            lr: self.lr.or(file.lr),
            warmup: self.warmup.or(file.warmup),
            schedule: self.schedule.or(file.schedule),
            weight_decay: self.weight_decay.or(file.weight_decay),
            clip: self.clip.or(file.clip),
            alpha: self.alpha.or(file.alpha),
            temperature: self.temperature.or(file.temperature),
            teacher_format: self.teacher_format.or(file.teacher_format),
            beta: self.beta.or(file.beta),
            recompute: self.recompute.or(file.recompute),
            precision: self.precision.or(file.precision),
            seed: self.seed.or(file.seed),
            shuffle: self.shuffle.or(file.shuffle),
            device: self.device.or(file.device),
            bundle: self.bundle.or(file.bundle),
            trusted_key: if self.trusted_key.is_empty() { file.trusted_key } else { self.trusted_key },
            allow_identical: self.allow_identical.or(file.allow_identical),
            checkpoint_every: self.checkpoint_every.or(file.checkpoint_every),
            keep: self.keep.or(file.keep),
        }
    }

    /// Refuses options of a teacher in a run that has none.
    fn without_teacher(&self) -> Result<(), Failure> {
        let options = [
            ("--teacher", self.teacher.is_some()),
            ("--student", self.student.is_some()),
            ("--alpha", self.alpha.is_some()),
            ("--temperature", self.temperature.is_some()),
            ("--beta", self.beta.is_some()),
            ("--teacher-format", self.teacher_format.is_some()),
            ("--allow-identical", self.allow_identical.is_some()),
        ];
        match options.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((option, _)) => Err(Failure::Usage(format!(
                "{option} is of a run with a teacher, and --model trains without one: leave {option} out, or give --teacher \
                 and --student in place of --model"
            ))),
        }
    }

    /// The complete configuration, checked: of --model alone, or of a teacher and a student. `needs_run` asks for data and an output directory too.
    ///
    /// # Errors
    /// [`Failure::Usage`] for what is missing or out of range.
    pub fn complete(self, needs_run: bool) -> Result<RunConfig, Failure> {
        let missing =
            |flag: &str| Failure::Usage(format!("{flag} is missing: give it as a flag or in --config run.toml"));
        let objective = match self.model {
            Some(_) => {
                self.without_teacher()?;
                Objective::CrossEntropy
            }
            None => Objective::Distill {
                alpha: self.alpha.unwrap_or(0.5),
                temperature: self.temperature.unwrap_or(2.0),
                beta: self.beta.unwrap_or(0.0),
            },
        };
        let teacher_format = objective.has_teacher().then(|| self.teacher_format.unwrap_or_default());
        let (teacher, student) = match self.model {
            Some(model) => (None, model),
            None => (
                Some(self.teacher.ok_or_else(|| missing("--teacher"))?),
                self.student.ok_or_else(|| missing("--student"))?,
            ),
        };
        let config = RunConfig {
            teacher,
            student,
            data: self.data,
            out: match self.out {
                Some(out) => out,
                None if needs_run => return Err(missing("--out")),
                None => PathBuf::new(),
            },
            steps: self.steps.unwrap_or(1000),
            batch_size: self.batch_size.unwrap_or(8),
            seq_len: self.seq_len.unwrap_or(1024),
            grad_accum: self.grad_accum.unwrap_or(1),
            lr: self.lr.unwrap_or(1e-4),
            warmup: self.warmup.unwrap_or(0),
            schedule: self.schedule.unwrap_or(Schedule::Constant),
            weight_decay: self.weight_decay.unwrap_or(0.01),
            clip: self.clip.unwrap_or(1.0),
            objective,
            teacher_format,
            recompute: self.recompute.unwrap_or_default(),
            precision: self.precision.unwrap_or(Precision::Bf16),
            seed: self.seed.unwrap_or(0),
            shuffle: self.shuffle.unwrap_or(false),
            device: self.device.unwrap_or(DeviceChoice::Auto),
            bundle: self.bundle,
            trusted_key: self.trusted_key,
            allow_identical: self.allow_identical.unwrap_or(false),
            checkpoint_every: self.checkpoint_every.unwrap_or(500),
            keep: self.keep.unwrap_or(1),
        };
        if needs_run && config.data.is_empty() {
            return Err(missing("--data"));
        }
        config.check()?;
        Ok(config)
    }
}

impl RunConfig {
    fn check(&self) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::Usage(what));
        let counts = [
            ("--steps", self.steps, 1, MOST_STEPS),
            ("--warmup", self.warmup, 0, MOST_STEPS),
            ("--grad-accum", self.grad_accum.into(), 1, MOST_MICRO_BATCHES),
            ("--batch-size", self.batch_size.into(), 1, Recipe::MOST_TOKENS),
            ("--seq-len", self.seq_len.into(), 1, Recipe::MOST_TOKENS),
        ];
        let outside = |(_, count, least, most): &(&str, u64, u64, u64)| count < least || count > most;
        if let Some((option, count, least, most)) = counts.into_iter().find(outside) {
            return wrong(match count < least {
                true => format!("{option} must be at least {least}"),
                false => format!("{option} {count} is more than {most}"),
            });
        }
        if self.keep == 0 {
            return wrong("--keep must be at least 1; --checkpoint-every 0 writes no checkpoints".into());
        }
        // The device computes in f32: what is none of its numbers above 0 is no learning rate.
        let lr = self.lr as f32;
        if !lr.is_finite() || lr <= 0.0 {
            return wrong(format!("--lr {} must be a number above 0, in the range of f32", self.lr));
        }
        if let Objective::Distill { alpha, temperature, beta } = self.objective {
            let (least, most) = (*TEMPERATURES.start(), *TEMPERATURES.end());
            let numbers =
                [("--temperature", temperature, least, most), ("--alpha", alpha, 0.0, 1.0), ("--beta", beta, 0.0, 1.0)];
            // NaN is between no two numbers.
            let outside = |(_, value, least, most): &(&str, f32, f32, f32)| !(*least..=*most).contains(value);
            if let Some((option, value, least, most)) = numbers.into_iter().find(outside) {
                return wrong(format!("{option} {value} is not between {least} and {most}"));
            }
        }
        for (option, value) in [("--weight-decay", self.weight_decay), ("--clip", self.clip)] {
            if !value.is_finite() || value < 0.0 {
                return wrong(format!("{option} {value} must be a number that is not negative"));
            }
        }
        Ok(())
    }

    /// The files and directories that a run reads.
    pub fn inputs(&self) -> Vec<&Path> {
        let models = self.teacher.iter().chain([&self.student]).chain(&self.data).chain(&self.bundle);
        let keys = self.trusted_key.iter().map(Path::new).filter(|key| key.exists());
        models.map(PathBuf::as_path).chain(keys).collect()
    }

    /// Where the models are.
    pub fn models(&self) -> Models<&Path> {
        Models { teacher: self.teacher.as_deref(), student: &self.student }
    }

    /// The kernels to use.
    pub fn kernels(&self) -> Kernels {
        Kernels { bundle: self.bundle.clone(), trusted_key: self.trusted_key.clone() }
    }

    /// The loss of a step, nats.
    pub fn loss(&self, metrics: &step_metrics) -> f64 {
        self.objective.loss(metrics.kd_loss.into(), metrics.ce_loss.into())
    }

    /// What the plan follows from.
    pub fn recipe(&self) -> Recipe {
        Recipe {
            batch: self.batch_size,
            seq_len: self.seq_len,
            precision: self.precision,
            objective: self.objective,
            weight_decay: self.weight_decay,
            clip: self.clip,
            recompute: self.recompute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toml(text: &str) -> Result<Options, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn devices_read_back() {
        for text in ["auto", "sim", "cuda:1", "portable:0"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        // What `portable` was called.
        assert_eq!("generic:2".parse(), Ok(DeviceChoice::Portable(2)));
        assert!("portable".parse::<DeviceChoice>().is_err());
    }

    #[test]
    fn flags_override_the_file() {
        let file = toml("teacher = 't'\nstudent = 's'\nlr = 1e-3\nprecision = 'fp32'\ndevice = 'cuda:1'").unwrap();
        let flags = Options { lr: Some(2e-3), ..Options::default() };
        let config = flags.over(file).complete(false).unwrap();
        assert_eq!((config.lr, config.precision), (2e-3, Precision::Fp32));
        assert_eq!(config.device, DeviceChoice::Cuda(1));
    }

    #[test]
    fn unknown_and_impossible_values_are_refused() {
        assert!(toml("learning_rate = 1").is_err());
        assert!(toml("precision = 'fp16'").is_err());
        let options = |change: fn(&mut Options)| {
            let mut options = Options { teacher: Some("t".into()), student: Some("s".into()), ..Options::default() };
            change(&mut options);
            options.complete(false)
        };
        assert!(options(|_| {}).is_ok());
        assert!(options(|o| o.alpha = Some(1.5)).is_err());
        assert!(options(|o| o.lr = Some(f64::NAN)).is_err());
        assert!(options(|o| o.steps = Some(0)).is_err());
        // Numbers that f32 does not hold.
        assert!(options(|o| o.lr = Some(1e39)).is_err() && options(|o| o.lr = Some(1e-50)).is_err());
        assert!(options(|o| o.teacher = None).is_err());
        assert!(options(|o| o.beta = Some(1.5)).is_err() && options(|o| o.beta = Some(f32::NAN)).is_err());
    }

    #[test]
    fn the_option_that_is_wrong_is_the_one_named() {
        let message = |change: fn(&mut Options)| {
            let mut options = Options { teacher: Some("t".into()), student: Some("s".into()), ..Options::default() };
            change(&mut options);
            options.complete(false).unwrap_err().to_string()
        };
        type Case = (&'static str, fn(&mut Options));
        let cases: [Case; 9] = [
            ("--steps ", |o| o.steps = Some(0)),
            ("--grad-accum ", |o| o.grad_accum = Some(0)),
            ("--batch-size ", |o| o.batch_size = Some(0)),
            ("--seq-len ", |o| o.seq_len = Some(0)),
            ("--lr ", |o| o.lr = Some(-1.0)),
            ("--temperature ", |o| o.temperature = Some(0.0)),
            ("--beta ", |o| o.beta = Some(-0.1)),
            ("--weight-decay ", |o| o.weight_decay = Some(-0.5)),
            ("--clip ", |o| o.clip = Some(f32::INFINITY)),
        ];
        for (option, change) in cases {
            let message = message(change);
            assert!(message.starts_with(option) && message.matches("--").count() == 1, "{message}");
        }
    }

    #[test]
    fn a_model_alone_trains_without_a_teacher_and_takes_no_option_of_one() {
        let alone = |change: fn(&mut Options)| {
            let mut options = Options { model: Some("m".into()), ..Options::default() };
            change(&mut options);
            options.complete(false)
        };
        let config = alone(|_| {}).unwrap();
        assert_eq!((config.teacher.as_ref(), config.objective), (None, Objective::CrossEntropy));
        let json = serde_json::to_value(&config).unwrap();
        let absent = ["teacher", "alpha", "temperature", "beta"].map(|name| json.get(name));
        assert_eq!((absent, &json["student"]), ([None; 4], &"m".into()));
        type Case = (&'static str, fn(&mut Options));
        let cases: [Case; 7] = [
            ("--teacher-format ", |o| o.teacher_format = Some(WeightFormat::Stored)),
            ("--teacher ", |o| o.teacher = Some("t".into())),
            ("--student ", |o| o.student = Some("s".into())),
            ("--alpha ", |o| o.alpha = Some(0.5)),
            ("--temperature ", |o| o.temperature = Some(2.0)),
            ("--beta ", |o| o.beta = Some(0.0)),
            ("--allow-identical ", |o| o.allow_identical = Some(true)),
        ];
        for (option, change) in cases {
            let Err(Failure::Usage(message)) = alone(change) else { panic!("{option} is taken") };
            assert!(message.starts_with(option), "{message}");
        }
        let both = toml("teacher = 't'\nstudent = 's'").unwrap().complete(false).unwrap();
        let json = serde_json::to_value(both).unwrap();
        assert_eq!([&json["alpha"], &json["temperature"], &json["beta"]], [0.5, 2.0, 0.0]);
    }

    #[test]
    fn recompute_is_a_name_or_a_flag() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let flag = |arguments: &[&str]| {
            let line = <Line as clap::Parser>::try_parse_from([&["precast"], arguments].concat());
            line.map(|line| line.options.recompute)
        };
        assert_eq!(flag(&[]).unwrap(), None);
        for (text, choice) in [
            ("none", Recompute::None),
            ("false", Recompute::None),
            ("norms", Recompute::Norms),
            ("true", Recompute::Norms),
            ("blocks", Recompute::Blocks),
        ] {
            assert_eq!(flag(&["--recompute", text]).unwrap(), Some(choice));
            assert_eq!(toml(&format!("recompute = '{text}'")).unwrap().recompute, Some(choice));
        }
        assert_eq!(flag(&["--recompute"]).unwrap(), Some(Recompute::Norms));
        assert!(flag(&["--recompute", "all"]).is_err());
        assert_eq!(toml("recompute = true").unwrap().recompute, Some(Recompute::Norms));
        assert_eq!(toml("recompute = false").unwrap().recompute, Some(Recompute::None));
        assert!(toml("recompute = 1").is_err());
    }

    /// The build enumerates what `Recipe::every` has: a kind of recipe that flags reach and it lacks would be kernels
    /// that nobody built.
    #[test]
    fn every_recipe_that_flags_can_reach_is_enumerated() {
        let distill = |beta: &str| format!("teacher = 't'\nstudent = 's'\n{beta}");
        let objectives = [
            "model = 'm'".to_owned(),
            distill(""),
            distill("beta = 0.0"),
            distill("beta = 1.0"),
            distill("beta = 0.5"),
            distill("beta = 1e-6"),
        ];
        let mut reached = Vec::new();
        for objective in objectives {
            for precision in ["fp32", "bf16"] {
                for recompute in ["none", "norms", "blocks"] {
                    let text = format!("{objective}\nprecision = '{precision}'\nrecompute = '{recompute}'");
                    let recipe = toml(&text).unwrap().complete(false).unwrap().recipe();
                    let kind = Recipe::every(1).position(|one| one.is_like(&recipe));
                    reached.push(kind.unwrap_or_else(|| panic!("not enumerated: {text}")));
                }
            }
        }
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(Recipe::every(1).count(), reached.len(), "a choice is missing above");
    }
}
