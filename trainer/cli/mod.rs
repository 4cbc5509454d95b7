//! The commands of `precast`.

mod bench;
mod cache;
mod compare;
mod data;
mod distill;
mod doctor;
mod either;
mod eval;
mod evidence;
mod export;
mod generate;
mod help;
mod init;
mod kernels;
mod log;
mod merge;
mod plan;
mod renamed;
mod selftest;
mod shell;
mod smoke;
mod version;

use std::path::{Path, PathBuf};

use clap::error::{Error, ErrorKind};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::base::stop::end_at_signal;
use crate::inputs::checkpoint::Checkpoint;
use crate::options::FileOptions;
use crate::programs::failure::Failure;
use crate::run::outcome::RunFault;
use crate::run::report;
use crate::run::report_file::REPORT;
use precast_system::files::Existing;
use precast_system::{built, say, stdout};

/// Distill a large Qwen or Llama model into a small one, or train one on data alone: every kernel compiled, verified and loaded
/// before the first step.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bundle or kernels, 4 device, 5 data or model or checkpoint; 129, 130, 131 and
/// 143 stopped by SIGHUP, SIGINT, SIGQUIT, SIGTERM.
#[derive(Parser)]
#[command(name = "precast", version, arg_required_else_help = true, args_override_self = true)]
struct Arguments {
    /// With --version: also commit, compilers, and digests of kernels and locks
    #[arg(long, requires = "version")]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a student on a teacher's predictions
    #[command(mut_args(distill::of_distill), mut_args(help::first(help::DISTILL)), after_long_help = help::example(help::PAIR))]
    Distill(Box<distill::Arguments>),
    /// Train a model on data alone, without a teacher
    #[command(mut_args(distill::of_train), mut_args(help::first(help::TRAIN)), after_long_help = help::example(help::MODEL))]
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
    /// Check driver, GPU, kernels and memory, with a remedy for each that is BAD; exits with 4 for the machine, 3 for kernels
    #[command(mut_args(help::first(help::DOCTOR)))]
    Doctor(Box<doctor::Arguments>),
    /// Record the results of this chip: every kernel against its reference, a short training run, the time of every kernel
    #[command(mut_args(help::plain))]
    Evidence(evidence::Arguments),
    /// List the embedded kernels
    #[command(mut_args(help::plain))]
    Kernels(kernels::Arguments),
    /// Run every kernel on the device against its host reference
    #[command(mut_args(help::plain))]
    Selftest(selftest::Arguments),
    /// Train twice on one small batch and check that the loss falls and both runs give the same bits: one line of JSON for CI
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
    fn file(&self) -> Option<&Path> {
        match self {
            Self::Distill(arguments) | Self::Train(arguments) => arguments.file(),
            Self::Plan(arguments) => arguments.file(),
            _ => None,
        }
    }
}

/// Parses the command line and runs it.
///
/// # Errors
/// [`Failure`] with its exit code.
pub fn main() -> Result<(), Failure> {
    let startup = crate::base::startup_times::Startup::default();
    let arguments = match FileOptions::default().parse::<Arguments>() {
        Ok(arguments) => arguments,
        Err(usage) if usage.use_stderr() => {
            return Err(renamed::renamed(std::env::args_os()).map_or_else(|| usage.exit(), Failure::from));
        }
        Err(asked) if asked.kind() == ErrorKind::DisplayVersion && built::is_verbose() => return version::run(),
        Err(help) => {
            stdout::wrote(help.print());
            return Ok(());
        }
    };
    let arguments = match arguments.command.file() {
        Some(file) => FileOptions::read(file)?.parse().unwrap_or_else(|error: Error| error.exit()),
        None => arguments,
    };
    // Those with ranks end all of them.
    if !matches!(arguments.command, Command::Distill(_) | Command::Train(_) | Command::Cache(_)) {
        end_at_signal()?;
    }
    match arguments.command {
        Command::Distill(arguments) => distill::distill(*arguments, startup),
        Command::Train(arguments) => distill::train(*arguments, startup),
        Command::Cache(arguments) => cache::run(*arguments),
        Command::Data(arguments) => data::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Config { model } => {
            print_json(&Checkpoint::open(&model)?.json);
            Ok(())
        }
        Command::Plan(arguments) => plan::run(*arguments),
        Command::Bench(arguments) => bench::run(arguments, startup),
        Command::Eval(arguments) => eval::run(*arguments),
        Command::Generate(arguments) => generate::run(arguments),
        Command::Doctor(arguments) => doctor::run(*arguments),
        Command::Evidence(arguments) => evidence::run(arguments),
        Command::Kernels(arguments) => kernels::run(arguments),
        Command::Selftest(arguments) => selftest::run(arguments),
        Command::Smoke(arguments) => smoke::run(arguments),
        Command::Completions { shell } => {
            shell::completions(shell);
            Ok(())
        }
        Command::Man { directory } => shell::man(&directory),
        Command::Bug => panic!("asked for by name"),
        Command::Log(arguments) => log::run(arguments),
        Command::Report { run } => {
            report::write(&run)?;
            say!("{}", run.join(REPORT).display());
            Ok(())
        }
    }
}

/// Ends the program's output.
///
/// # Errors
/// [`Failure`] where a line of it did not arrive.
pub fn finish() -> Result<(), Failure> {
    stdout::finish().map_err(|error| RunFault(format!("cannot write to standard output: {error}")).into())
}

/// Says what `--overwrite` does with what lies in `--out`.
fn existing(overwrite: bool) -> Existing {
    if overwrite { Existing::Replace } else { Existing::Keep }
}

/// Prints JSON for programs, or text for people.
fn print_as(json: bool, value: &impl serde::Serialize, text: impl std::fmt::Display) {
    if json { print_json(value) } else { say!("{text}") }
}

/// Prints JSON for programs.
fn print_json(value: &impl serde::Serialize) {
    say!("{}", serde_json::to_string_pretty(value).expect("plain data serializes"));
}

#[cfg(test)]
mod tests;
