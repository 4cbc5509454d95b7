//! The command line of `precast`.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use super::{
    bench, cache, data, distill, doctor, eval, evidence, export, generate, help, init, kernels, log, merge, plan,
    selftest, smoke,
};
use crate::options::groups::values::model;

/// Distill a large Qwen or Llama model into a small one, or train one on data alone: every kernel compiled, verified
/// and loaded before the first step.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bundle or kernels, 4 device, 5 data or model or checkpoint; 129, 130,
/// 131 and 143 stopped by SIGHUP, SIGINT, SIGQUIT, SIGTERM.
#[derive(Parser)]
#[command(name = "precast", version, arg_required_else_help = true, args_override_self = true)]
pub(super) struct Arguments {
    /// With --version: also commit, compilers, and digests of kernels and locks
    #[arg(long, requires = "version")]
    verbose: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Train a student on a teacher's predictions
    #[command(mut_args(distill::of_distill), mut_args(help::first(help::DISTILL)), after_long_help =
        help::example(help::PAIR))]
    Distill(Box<distill::Arguments>),
    /// Train a model on data alone, without a teacher
    #[command(mut_args(distill::of_train), mut_args(help::first(help::TRAIN)), after_long_help =
        help::example(help::MODEL))]
    Train(Box<distill::Arguments>),
    /// Compute a teacher on data once, for runs with --teacher-cache
    #[command(mut_args(help::first(help::CACHE)))]
    Cache(Box<cache::Arguments>),
    /// Print the first rows of data as the model reads them: their tokens, and which of them count
    #[command(mut_args(help::plain))]
    Data(data::Arguments),
    /// Make a student from random weights or from layers of a teacher
    Init(init::Arguments),
    /// Merge a LoRA adapter into its model, and write the model
    Merge(merge::Arguments),
    /// Write a model as a GGUF file that llama.cpp and ollama read: weights, tokenizer, chat template
    Export(export::Arguments),
    /// Print a model's config.json; for a .gguf or .apr file, the equivalent
    Config {
        /// Model: Hugging Face directory, .gguf or .apr
        #[arg(value_parser = model())]
        model: PathBuf,
    },
    /// Say whether a run, or a generation, fits into memory, and what it takes
    #[command(mut_args(help::first(help::PLAN)))]
    Plan(Box<plan::Arguments>),
    /// Measure steps, decoding or kernels: random tokens, and random weights for a bare config.json
    Bench(bench::Arguments),
    /// Measure the perplexity of text under a model
    #[command(mut_args(help::plain))]
    Eval(Box<eval::Arguments>),
    /// Complete a prompt, or many prompts, as rows of data
    #[command(mut_args(help::plain))]
    Generate(generate::Arguments),
    /// Check driver, GPU, kernels and memory, with a remedy for each that is BAD; exits with 4 for the machine, 3 for
    /// kernels
    #[command(mut_args(help::first(help::DOCTOR)))]
    Doctor(Box<doctor::Arguments>),
    /// Record the results of this chip: every kernel against its reference, a short training run, the time of every
    /// kernel
    #[command(mut_args(help::plain))]
    Evidence(evidence::Arguments),
    /// List the embedded kernels
    #[command(mut_args(help::plain))]
    Kernels(kernels::Arguments),
    /// Run every kernel on the device against its host reference
    #[command(mut_args(help::plain))]
    Selftest(selftest::Arguments),
    /// Train twice on one small batch and check that the loss falls and both runs give the same bits: one line of JSON
    /// for CI
    #[command(mut_args(help::first(help::SMOKE)))]
    Smoke(smoke::Arguments),
    /// Print the completions of a shell: `source <(precast completions bash)`
    Completions {
        /// bash, elvish, fish, powershell or zsh
        shell: Shell,
    },
    /// Write manual pages
    Man {
        /// Directory to write the pages to, new or empty
        directory: PathBuf,
    },
    /// Panic, to show what a bug report looks like
    #[command(hide = true)]
    Bug,
    /// Send a run's metrics to wandb, mlflow or trackio, also while the run is training
    Log(log::Arguments),
    /// Rewrite a run's report.html, also while the run is training
    Report {
        /// The run's output directory
        run: PathBuf,
    },
}

impl Command {
    /// The file of options that it names.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Distill(arguments) | Self::Train(arguments) => arguments.file(),
            Self::Plan(arguments) => arguments.file(),
            _ => None,
        }
    }
}
