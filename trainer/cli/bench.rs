//! `precast bench`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, value_parser};
use itertools::Itertools;
use precast_system::files::Existing;
use precast_system::say;

use super::help;
use super::output::print_as;
use crate::base::load_trace::Verbose;
use crate::base::startup_times::Startup;
use crate::options::groups::values::{MOST_MICRO_BATCHES, MOST_STEPS, count, share};
use crate::options::{
    CompletionOptions, DivisionOptions, Measurement, OnPolicyOptions, Options, PackingOptions, UsageError,
};
use crate::programs::bench::{self, GenerationBench, KernelBench, Measured, Reader, Record};
use crate::run::failure::Failure;
use crate::run::out::check_directory;

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measure a step of training, and each of its kernels; a bare config.json has random weights
    #[command(mut_args(help::first(help::BENCH_STEP)))]
    Step(Box<Step>),
    /// Measure a generation, its steps by their rows, and each kernel of the largest
    #[command(mut_args(help::plain))]
    Generate(Generate),
    /// Measure steps on completions that the student writes of random prompts
    OnPolicy(Box<OnPolicy>),
    /// Measure kernels by themselves
    ///
    /// Each kernel of the bundle is launched at --batch-size times --seq-len tokens, hidden size 4096, vocabulary
    /// 131072. On the simulated GPU, unless --batch-size or --seq-len is given, it is the largest launch that selftest
    /// checks.
    #[command(mut_args(help::plain))]
    Kernels(KernelArguments),
    /// Measure every variant of each launch of a step that has a choice, for --tuned
    Tune(Box<Tune>),
}

/// A run whose steps are measured.
#[derive(Args)]
struct Run {
    #[command(flatten)]
    measured: Measurement,
    /// Micro-batches in a step
    #[arg(long, value_name = "A", default_value_t = 1, help_heading = "Shape",
          value_parser = count(MOST_MICRO_BATCHES))]
    grad_accum: u32,
}

impl Run {
    fn options(self) -> Result<Options, UsageError> {
        let division = DivisionOptions { grad_accum: Some(self.grad_accum), replicas: None };
        Ok(Options { division, ..self.measured.into_options()? })
    }
}

/// Where results go.
#[derive(Args)]
struct Output {
    /// Directory to write bench.json and report.html to
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Refuses a directory of others before anything is measured, and says who reads.
    fn start(&self, inputs: &[&Path]) -> Result<Reader, Failure> {
        self.verbose.start();
        self.out.as_deref().map(|out| check_directory(out, Existing::Replace, inputs)).transpose()?;
        Ok(if self.json { Reader::Program } else { Reader::Person })
    }

    /// Writes and prints what was measured.
    fn end(&self, record: &Record<impl Measured>) -> Result<(), Failure> {
        self.out.iter().try_for_each(|out| record.write(out))?;
        print_as(self.json, record, record);
        Ok(())
    }
}

#[derive(Args)]
struct Step {
    #[command(flatten)]
    run: Run,
    /// Steps to time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u64).range(1..=MOST_STEPS))]
    steps: u64,
    /// Files whose rows the steps take, in their order, in place of full rows of random tokens
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Data")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    packing: PackingOptions,
    /// Measure steps of other shapes, too
    ///
    /// They have 1 to 32 sequences of 512 to 8192 tokens, as far as memory has room. A cache is of sequences of one
    /// length.
    #[arg(long, conflicts_with_all = ["teacher_cache", "data"])]
    sweep: bool,
    #[command(flatten)]
    output: Output,
}

fn step(Step { run, steps, data, packing, sweep, output }: Step, startup: Startup) -> Result<(), Failure> {
    let config = Options { steps: steps.into(), data, packing, ..run.options()? }.planned()?;
    let reader = output.start(&config.inputs())?;
    let mut record = bench::bench(&config, startup, reader)?;
    if sweep {
        record.measured.sweep = Some(bench::sweep(&config)?);
    }
    output.end(&record)
}

#[derive(Args)]
struct Generate {
    #[command(flatten)]
    request: GenerationBench,
    #[command(flatten)]
    output: Output,
}

fn generate(Generate { request, output }: Generate, startup: Startup) -> Result<(), Failure> {
    let reader = output.start(&request.decoding.inputs())?;
    output.end(&bench::bench_generation(&request, startup, reader)?)
}

#[derive(Args)]
#[command(
    mut_arg("prompt_tokens", |option| option.help(PROMPT_TOKENS)),
    mut_arg("max_tokens", |option| option.help(MAX_TOKENS))
)]
struct OnPolicy {
    #[command(flatten)]
    run: Run,
    /// Share of the sequences that the student completes
    #[arg(long, value_name = "L", default_value = "1", value_parser = share, help_heading = "On-policy")]
    share: f32,
    #[command(flatten)]
    completions: CompletionOptions,
    /// Steps to time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u64).range(1..=MOST_STEPS))]
    steps: u64,
    #[command(flatten)]
    output: Output,
}

const PROMPT_TOKENS: &str = "Tokens of each prompt, which are random [default: what --max-tokens leaves of --seq-len]";
const MAX_TOKENS: &str = "Tokens of each completion, which nothing else ends [default: 512]";

fn on_policy(arguments: OnPolicy, startup: Startup) -> Result<(), Failure> {
    let OnPolicy { run, share, completions, steps, output } = arguments;
    let on_policy = OnPolicyOptions { on_policy: Some(share), completions, samples_every: 0 };
    let config = Options { steps: steps.into(), on_policy, ..run.options()? }.planned()?;
    let reader = output.start(&config.inputs())?;
    output.end(&bench::bench_rollouts(&config, startup, reader)?)
}

#[derive(Args)]
struct KernelArguments {
    #[command(flatten)]
    request: KernelBench,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn kernels(KernelArguments { request, verbose, json }: &KernelArguments) -> Result<(), Failure> {
    verbose.start();
    let timed = bench::time_kernels(request)?;
    print_as(*json, &timed, timed.iter().format("\n"));
    Ok(())
}

#[derive(Args)]
struct Tune {
    /// Table to write the times to; other launches in it stay (the built-in one is kernels/src/tuned.txt)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    run: Run,
    #[command(flatten)]
    verbose: Verbose,
}

fn tune(Tune { file, run, verbose }: Tune, startup: Startup) -> Result<(), Failure> {
    verbose.start();
    let launches = bench::tune(&run.options()?.planned()?, &file, startup)?;
    say!("{launches} launches measured: {}", file.display());
    Ok(())
}

pub fn run(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    match arguments.what {
        What::Step(arguments) => step(*arguments, startup),
        What::Generate(arguments) => generate(arguments, startup),
        What::OnPolicy(arguments) => on_policy(*arguments, startup),
        What::Kernels(arguments) => kernels(&arguments),
        What::Tune(arguments) => tune(*arguments, startup),
    }
}
