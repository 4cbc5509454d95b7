//! Every option of a run.

use std::path::PathBuf;

use clap::{Args, value_parser};

use super::values::{MOST_STEPS, above_zero};
use super::{
    AdapterOptions, ArithmeticOptions, Change, DeviceOptions, DivisionOptions, ModelOptions, OnPolicyOptions,
    OptimizerOptions, OrderOptions, OutputOptions, PackingOptions, ShapeOptions, TeachingOptions, TextOptions,
    TuningOptions,
};
use crate::options::given::{Given, Sourced};

/// Every option of a run as it is asked for. [`Self::resolve`] makes a run's configuration of them.
/// Help shows headings in the order of these fields.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    pub models: ModelOptions,
    /// Train on .txt, .bin, .jsonl, .csv, .parquet; repeatable
    ///
    /// .bin holds u32 token ids. Rows of .jsonl, .csv and .parquet are read by the first of these columns that they
    /// have: input_ids (labels beside it, of which -100 do not count, and attention_mask, of which 0 is padding),
    /// messages, conversations (from and value), prompt and completion, instruction and output (and input), text. A
    /// directory stands for its files, in name order. PATH=SHARE, for each of them, mixes sources by their shares of
    /// the tokens, as --data a.jsonl=0.7 --data b.jsonl=0.3. PATH@NAME, or PATH=SHARE@NAME, is taught by the --teacher
    /// of that name.
    #[arg(long, value_name = "PATH", num_args = 1.., help_heading = "Data", add = Change::OnAnyHost)]
    pub data: Vec<PathBuf>,
    /// Held-out data, as --data: its loss is computed at checkpoints, at the end and every --eval-every steps;
    /// repeatable
    ///
    /// Prompts alone are completed by the student each time, with --on-policy or --max-tokens: the loss is that of what
    /// it writes.
    #[arg(long, value_name = "PATH", num_args = 1.., help_heading = "Data", add = Change::OnAnyHost)]
    pub eval_data: Vec<PathBuf>,
    #[command(flatten)]
    pub text: TextOptions,
    #[command(flatten)]
    pub packing: PackingOptions,
    #[command(flatten)]
    pub order: OrderOptions,
    /// Optimizer steps
    #[arg(long, value_name = "N", default_value = "1000", value_parser =
        Sourced(value_parser!(u64).range(1..=MOST_STEPS)),
          help_heading = "Shape", add = Change::AtResume)]
    pub steps: Given<u64>,
    /// Passes over the data, in place of --steps: rounded up to whole steps
    #[arg(long, value_name = "X", value_parser = Sourced(above_zero), help_heading = "Shape", add = Change::AtResume)]
    pub epochs: Option<Given<f64>>,
    #[command(flatten)]
    pub shape: ShapeOptions,
    #[command(flatten)]
    pub division: DivisionOptions,
    #[command(flatten)]
    pub optimizer: OptimizerOptions,
    #[command(flatten)]
    pub arithmetic: ArithmeticOptions,
    #[command(flatten)]
    pub teaching: TeachingOptions,
    #[command(flatten)]
    pub on_policy: OnPolicyOptions,
    #[command(flatten)]
    pub adapting: AdapterOptions,
    /// Directory of checkpoints, report and trained weights
    ///
    /// It is a new or empty directory, unless --resume or --overwrite is given.
    #[arg(long, value_name = "DIR", help_heading = "Output", add = Change::OnAnyHost)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub target: DeviceOptions,
    #[command(flatten)]
    pub tuning: TuningOptions,
}
