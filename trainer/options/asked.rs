//! The options of a run: the one place that spells them. Their names, values, defaults and help on the command line come from
//! here, and so do those of run.toml, of `run.json` and of what a run that continues is compared by.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, value_parser};
use precast_plan::{Gemm, Precision, Recipe, Recompute};
use serde::Serialize;

use super::device::DeviceChoice;
use crate::base::record_text::{display, display_or_none};
use crate::inputs::adapter::{self, Target};
use crate::inputs::chat::Date;
use crate::options::Kernels;
use crate::options::MostKl;
use crate::options::Patience;
use crate::options::WeightFormat;
use crate::options::schedule::Schedule;

/// Every option of a run, each a number or a name that it can have. [`Self::complete`] makes a run's configuration of them.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The model to learn from: a Hugging Face directory, a .gguf or an .apr file
    #[arg(long, value_name = "PATH")]
    pub teacher: Option<PathBuf>,
    /// The model to train: a Hugging Face directory, a .gguf or an .apr file (make one with `precast init`)
    #[arg(long, value_name = "PATH")]
    pub student: Option<PathBuf>,
    /// The model to train without a teacher, in place of --teacher and --student: a Hugging Face directory, a .gguf or an .apr file
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Training data: .bin (u32 token ids), .txt, or rows in .jsonl or .parquet, of the first of these columns that are there:
    /// input_ids (and labels, of which -100 do not count, and attention_mask, of which 0 is padding), messages, prompt and
    /// completion, text. A directory is its files, in name order; repeatable
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// Where checkpoints, metrics, report and the trained student go: a new or empty directory, unless --resume or
    /// --overwrite is given
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Held-out data, as --data: its loss is computed at checkpoints, at the end and every --eval-every steps; repeatable
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub eval_data: Vec<PathBuf>,
    #[command(flatten)]
    pub teaching: Teaching,
    #[command(flatten)]
    pub adapting: Adapting,
    #[command(flatten)]
    pub settings: Settings,
    /// The options that are given, and where; all others have their defaults.
    #[arg(skip)]
    pub given: BTreeMap<String, Source>,
}

/// The place where an option is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// On the command line.
    Flag,
    /// In the file that `--config` names.
    File,
}

/// How a teacher teaches: a run without one refuses these.
#[derive(Args, Clone, Debug)]
pub struct Teaching {
    /// Weight of the teacher's term in the loss, 0 to 1
    #[arg(long, value_name = "X", default_value = "0.5", value_parser = within(0.0..=1.0))]
    pub alpha: f32,
    /// Distillation temperature
    #[arg(long, value_name = "X", default_value = "2", value_parser = within(TEMPERATURES))]
    pub temperature: f32,
    /// Divergence of the teacher's term, t of teacher and s of student: 0 is KL(t || s), 1 is KL(s || t), and between them is
    /// beta KL(t || m) + (1 - beta) KL(s || m) with m = beta t + (1 - beta) s
    #[arg(long, value_name = "X", default_value = "0", value_parser = within(0.0..=1.0))]
    pub beta: f32,
    /// How the teacher's weights live on the device. At the same bits: bf16 (the run's precision), stored (matrices as a GGUF
    /// file holds them, each dequantised just before its product) or auto (bf16 where that fits into the device's memory, else
    /// stored). At other bits, and faster: int8 (inputs of the layers' matrix multiplications are rotated and rounded to 8
    /// bits; the run says what that costs, in nats)
    #[arg(long, value_name = "FORM", default_value_t)]
    pub teacher_format: WeightFormat,
    /// Certificate of the teacher for --teacher-format int8, written by `precast eval --format int8 --against bf16 --out FILE`;
    /// without it a run measures the same on its first batch, if memory has room for that
    #[arg(long, value_name = "FILE")]
    pub teacher_certificate: Option<PathBuf>,
    /// Refuse --teacher-format int8 if its mean KL from the bf16 teacher is above this, nats a token; none for no limit
    /// [default: 0.02]
    #[arg(long, value_name = "X|none")]
    pub max_teacher_kl: Option<MostKl>,
    /// Allow a teacher that predicts the first batch far worse than guessing does
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true")]
    pub untrained: bool,
    /// Allow a student with the same weights as its teacher
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true")]
    pub allow_identical: bool,
}

/// Options of a run in which an adapter trains while the student stays as it is.
#[derive(Args, Clone, Debug)]
pub struct Adapting {
    /// Train a low-rank adapter (LoRA) of this rank, at most 256, while the student stays as it is; 0 for none
    #[arg(long, value_name = "R", value_parser = RangedU64ValueParser::<u32>::new().range(0..=MOST_RANK))]
    pub lora_rank: Option<u32>,
    /// What the adapter adds is multiplied by alpha / rank [default: twice the rank]
    #[arg(long, value_name = "A", value_parser = above_zero)]
    pub lora_alpha: Option<f64>,
    /// Projections that the adapter is on: all seven, or names, as in q_proj,v_proj
    #[arg(long, value_name = "all|LIST", default_value = "all", value_delimiter = ',')]
    pub lora_targets: Vec<Target>,
    /// Multiply by alpha / sqrt(rank) instead: rank-stabilized LoRA
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true")]
    pub lora_rslora: bool,
    /// Continue from this adapter instead of a new one: a PEFT directory, whose adapter_config.json says rank, alpha and targets
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// How the weights of a student with an adapter live on the device, at the same bits: bf16 (the run's precision) or stored
    /// (matrices as a GGUF file holds them: QLoRA) [default: bf16]
    #[arg(long, value_name = "FORM", value_parser = frozen_format)]
    pub student_format: Option<WeightFormat>,
}

/// Options that a run takes as they are.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Settings {
    /// Optimizer steps
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u64).range(1..=MOST_STEPS))]
    pub steps: u64,
    /// Sequences in a micro-batch
    #[arg(long, value_name = "B", default_value_t = 8, value_parser = count(Recipe::MOST_TOKENS))]
    pub batch_size: u32,
    /// Tokens in a sequence
    #[arg(long, value_name = "S", default_value_t = 1024, value_parser = count(Recipe::MOST_TOKENS))]
    pub seq_len: u32,
    /// Micro-batches in a step, over all GPUs [default: as many as --replicas]
    #[arg(long, value_name = "A", default_value_t = 1, hide_default_value = true, value_parser = count(MOST_MICRO_BATCHES))]
    pub grad_accum: u32,
    /// Parts of a step whose gradients are added by a tree: with the same number a run gives the same weights, to the last bit,
    /// on one GPU, or on several that take 1, 2, 4, ... parts each [default: GPUs at the first start]
    #[arg(long, value_name = "R", default_value_t = 1, hide_default_value = true, value_parser = count(MOST_MICRO_BATCHES))]
    #[serde(skip_serializing_if = "is_one")]
    pub replicas: u32,
    /// Peak learning rate
    #[arg(long, value_name = "X", default_value = "1e-4", value_parser = learning_rate)]
    pub lr: f64,
    /// Steps over which the learning rate rises
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u64).range(0..=MOST_STEPS))]
    pub warmup: u64,
    /// Learning rate after warm-up: constant or cosine
    #[arg(long, value_name = "SHAPE", default_value_t = Schedule::Constant)]
    pub schedule: Schedule,
    /// Decoupled weight decay of matrices
    #[arg(long, value_name = "X", default_value = "0.01", value_parser = not_negative)]
    pub weight_decay: f32,
    /// Largest gradient norm; 0 for none
    #[arg(long, value_name = "X", default_value = "1", value_parser = not_negative)]
    pub clip: f32,
    /// What the backward pass recomputes instead of keeping it, for less memory at the same bits: none, norms (the bare
    /// flag; SwiGLU too) or blocks (all but the residual stream)
    #[arg(long, value_name = "WHAT", default_value_t, num_args = 0..=1, default_missing_value = "norms")]
    #[serde(serialize_with = "display")]
    pub recompute: Recompute,
    /// Arithmetic: fp32, bf16, or int8: bf16, but the linear layers of what trains compute their outputs and the gradients of their
    /// inputs by 8-bit matrix multiplications, whose operands are rotated and rounded (docs/int8-training.md)
    #[arg(long, value_name = "P", default_value_t = Precision::Bf16)]
    #[serde(serialize_with = "display")]
    pub precision: Precision,
    /// What computes the matrix multiplications of linear layers: bundle (its kernels) or cublas (NVIDIA's cuBLASLt 13, opened
    /// only then: libcublasLt.so.13 in $PRECAST_CUBLAS, on the library path or in a CUDA toolkit); the bits differ
    #[arg(long, value_name = "WHAT", default_value_t)]
    #[serde(serialize_with = "display")]
    pub gemm: Gemm,
    /// Column to read instead of those that are looked for: text, token ids or messages
    #[arg(long, value_name = "COLUMN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_field: Option<String>,
    /// Date that strftime_now returns in chat templates, YYYY-MM-DD; undefined without it
    #[arg(long, value_name = "DATE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_date: Option<Date>,
    /// Seed of the shuffle, and of a new adapter
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Train on chunks in a new random order each pass, within windows of --shuffle-window
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    pub shuffle: bool,
    /// Chunks in a window of --shuffle; all of them are held in memory
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = count(MOST_WINDOW))]
    pub shuffle_window: u32,
    /// auto (the first GPU; sim where there is neither a GPU nor kernels for one), cuda:N, sim, or portable:N: cuda:N with the
    /// kernels that every architecture has
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto)]
    #[serde(serialize_with = "display")]
    pub device: DeviceChoice,
    #[command(flatten)]
    #[serde(flatten)]
    pub kernels: Kernels,
    /// Steps between checkpoints that --resume continues from, besides the one at the end; 0 for none at all
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub checkpoint_every: u64,
    /// How many checkpoints to keep: the latest, and besides them the one with the lowest loss on --eval-data
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = kept)]
    pub keep: u64,
    /// Steps between losses on --eval-data, besides those at checkpoints and at the end; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub eval_every: u64,
    /// Steps between log lines when output is not a terminal; the first and the last step have one
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    pub log_every: u64,
    /// Seconds that the GPU may take for one phase of a step before the run ends with 4 and says what hangs, or none for however
    /// long; time in which the process was stopped does not count [default: 50 times the longest step, 120 at least]
    #[arg(long, value_name = "SECONDS|none")]
    #[serde(serialize_with = "display_or_none", skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// Steps between comparisons of --precision int8's gradients with bf16's, a layer each, on one micro-batch, besides those at the
    /// first and the last step; 0 for none [default: 100]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard_every: Option<u64>,
    /// Take a student as it is whose losses have grown so much that the run diverged: it is written as any, and not as
    /// student.diverged
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true")]
    pub allow_divergence: bool,
    /// Write an event file for TensorBoard, at checkpoints, after losses on --eval-data and at the end
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true")]
    pub tensorboard: bool,
}

/// Bias corrections raise to the power of the step, which has 31 bits there.
const MOST_STEPS: u64 = i32::MAX as u64;
/// Micro-batches of a step: far more than a step of a week has.
const MOST_MICRO_BATCHES: u64 = 1 << 20;
/// Chunks of a window of the shuffle.
const MOST_WINDOW: u64 = 1 << 24;
/// Temperatures whose squares and inverses an fp32 loss can hold.
const TEMPERATURES: RangeInclusive<f32> = 1e-3..=1e3;

/// A run of one replica is recorded as those before there were any.
fn is_one(replicas: &u32) -> bool {
    *replicas == 1
}

/// The largest rank, as a range has it.
const MOST_RANK: u64 = adapter::MOST_RANK as u64;

fn count(most: u64) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=most)
}

fn number<T: std::str::FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// NaN is in no range.
fn within(range: RangeInclusive<f32>) -> impl Fn(&str) -> Result<f32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = number(text)?;
        let outside = || format!("{value} is not between {} and {}", range.start(), range.end());
        range.contains(&value).then_some(value).ok_or_else(outside)
    }
}

fn not_negative(text: &str) -> Result<f32, String> {
    let value: f32 = number(text)?;
    let good = value.is_finite() && value >= 0.0;
    good.then_some(value).ok_or_else(|| "must be a number that is not negative".to_owned())
}

/// The device computes in f32: what is none of its numbers above 0 is no learning rate.
fn learning_rate(text: &str) -> Result<f64, String> {
    let value: f64 = number(text)?;
    let good = (value as f32).is_finite() && value as f32 > 0.0;
    good.then_some(value).ok_or_else(|| "must be a number above 0, in the range of f32".to_owned())
}

/// As [`learning_rate`], of what scales an adapter.
fn above_zero(text: &str) -> Result<f64, String> {
    learning_rate(text)
}

/// What computes without training has fp32 and bf16.
pub(crate) fn exact_precision(text: &str) -> Result<Precision, String> {
    let precision: Precision = number(text)?;
    let trains = precision == Precision::Int8;
    if trains { Err("expected fp32 or bf16: int8 is how distill and train compute".to_owned()) } else { Ok(precision) }
}

pub(crate) fn frozen_format(text: &str) -> Result<WeightFormat, String> {
    let format: WeightFormat = number(text)?;
    let stays = [WeightFormat::Bf16, WeightFormat::Stored].contains(&format);
    if stays { Ok(format) } else { Err("expected bf16 or stored".to_owned()) }
}

fn kept(text: &str) -> Result<u64, String> {
    let none = || "must be at least 1; --checkpoint-every 0 writes no checkpoints".to_owned();
    number(text).and_then(|count| if count > 0 { Ok(count) } else { Err(none()) })
}
