//! Options of generation.

use std::path::{Path, PathBuf};

use clap::{Args, value_parser};
use precast_plan::{Gemm, Sampling};

use crate::device::frozen::Forward;
use crate::options::usage::first_asked;
use crate::options::{ChatOptions, SamplingOptions, SlotChoice, UsageError};

/// Tokens of a completion where nothing is said: of an answer, and of one of many.
const ANSWER_TOKENS: u32 = 128;
const COMPLETION_TOKENS: u32 = 512;

/// A request for an answer to a prompt, or for completions of data.
#[derive(Args, Clone, Debug)]
pub struct Generation {
    #[command(flatten)]
    pub forward: Forward,
    /// Message of a user to the model, by its chat template
    #[arg(long, value_name = "TEXT", required_unless_present = "data", conflicts_with = "data")]
    pub prompt: Option<String>,
    /// Take the prompt as the beginning of a text instead
    #[arg(long, conflicts_with = "data")]
    pub raw: bool,
    /// Prompts to complete, a file or directory of rows: `prompt` (text or messages), `messages` or `conversations`
    /// without the last answer, `instruction`, `input_ids` up to the first label that counts, or `text`; repeatable
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "out")]
    pub data: Vec<PathBuf>,
    /// File to write completions to, .jsonl: rows of `input_ids`, `labels` and `text`, which are data again
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub out: Option<PathBuf>,
    /// Continue the FILE of --out
    #[arg(long, conflicts_with = "prompt")]
    pub resume: bool,
    /// Make a prompt of each N tokens of files without rows: .txt and .bin
    #[arg(long, value_name = "N", conflicts_with = "prompt", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub prompt_tokens: Option<u32>,
    /// Completions of each prompt
    #[arg(long, value_name = "G", default_value_t = 1, conflicts_with = "prompt", value_parser =
        value_parser!(u32).range(1..=1 << 16))]
    pub group_size: u32,
    /// Tokens to generate, at most [default: 128; 512 with --data]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub max_tokens: Option<u32>,
    /// Tokens of a prompt with its completion, at most [default: what the longest needs, and the model takes]
    #[arg(long, value_name = "S", value_parser = value_parser!(u32).range(2..=1 << 22))]
    pub seq_len: Option<u32>,
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Completions at a time, each with keys and values of its own: a number, or auto for as many as the device has
    /// room for, 512 at most; results do not depend on it
    #[arg(long, value_name = "N|auto", default_value = "auto", conflicts_with = "prompt")]
    pub slots: SlotChoice,
    /// Column to read in place of those that are looked for
    #[arg(long, value_name = "COLUMN", conflicts_with = "prompt")]
    pub data_field: Option<String>,
    #[command(flatten)]
    pub chat: ChatOptions,
}

/// A generation that is planned or measured: a model, and the slots that it completes.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("precision", |option| option.default_value("bf16").help("Arithmetic: fp32 or bf16")))]
pub struct DecodingOptions {
    #[command(flatten)]
    pub forward: Forward,
    /// Completions at a time: a number, or auto for as many as there is room for, 512 at most
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub slots: SlotChoice,
}

impl DecodingOptions {
    /// Returns the files and directories that are read.
    pub fn inputs(&self) -> Vec<&Path> {
        let Forward { model, adapter, target, .. } = &self.forward;
        [model].into_iter().chain(adapter).map(PathBuf::as_path).chain(target.kernels.inputs()).collect()
    }
}

impl Generation {
    pub(super) fn max_tokens(&self) -> u32 {
        self.max_tokens.unwrap_or(if self.data.is_empty() { ANSWER_TOKENS } else { COMPLETION_TOKENS })
    }

    /// Returns the parameters of the draws, with the defaults of a prompt or of data.
    pub(super) fn sampling(&self) -> Sampling {
        self.sampling.resolve(if self.data.is_empty() { 0.0 } else { 1.0 }, self.seed)
    }

    /// Refuses options that do not go together.
    ///
    /// # Errors
    /// [`UsageError`].
    pub(super) fn check(&self) -> Result<(), UsageError> {
        refuse_cublas(self.forward.gemm)?;
        let SamplingOptions { top_k, top_p, .. } = &self.sampling;
        match first_asked!(top_k, top_p) {
            Some(option) if self.sampling().temperature == 0.0 => Err(UsageError(format!(
                "{option} draws from several tokens, and at --sampling-temperature 0 the likeliest is taken: give a \
                temperature above 0"
            ))),
            _ => Ok(()),
        }
    }
}

/// Refuses matrix multiplications whose rows depend on their neighbors.
///
/// # Errors
/// [`UsageError`].
pub(crate) fn refuse_cublas(gemm: Gemm) -> Result<(), UsageError> {
    match gemm {
        Gemm::Bundle => Ok(()),
        Gemm::Cublas => Err(UsageError(
            "--gemm cublas: a row of cuBLASLt's GEMMs has other bits where there are other rows beside it, so \
            completions would depend \
             on their neighbors: leave it out"
                .to_owned(),
        )),
    }
}
