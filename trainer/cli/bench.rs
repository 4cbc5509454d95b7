//! `precast bench`

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, value_parser};
use itertools::Itertools;
use precast_kernels::Batch;
use precast_system::files::Existing;
use precast_system::say;

use super::print_as;
use crate::base::load_trace::Verbose;
use crate::base::startup_times::Startup;
use crate::options::groups::values::{MOST_MICRO_BATCHES, MOST_STEPS, count};
use crate::options::{DivisionOptions, Flags, Measurement, Options, ShapeOptions, StepMeasurement, is_of_rollouts};
use crate::programs::bench::{self, GenerationBench, Measured, Reader, Record, TimedBatch};
use crate::programs::failure::Failure;
use crate::programs::generate::DecodingOptions;
use crate::run::out::check_directory;

#[derive(Args)]
#[command(
    group = ArgGroup::new(COMPLETES).args(["on_policy", "generate"]),
    mut_args(|option| if is_of_rollouts(option.get_id().as_str()) { option.requires(COMPLETES) } else { option }),
    // A benchmark keeps none.
    mut_arg("samples_every", |option| option.hide(true).conflicts_with("on_policy")),
    mut_arg("generate", |option| option.conflicts_with_all(["teacher", "teacher_cache", "student", "on_policy", "grad_accum", "steps", "sweep", "tune", "kernel"])),
    mut_arg("on_policy", |option| option.conflicts_with_all(["sweep", "tune", "kernel"]))
)]
pub struct Arguments {
    #[command(flatten)]
    measured: Flags<StepMeasurement>,
    /// Micro-batches in a step
    #[arg(long, value_name = "A", default_value_t = 1, help_heading = "Shape",
          value_parser = count(MOST_MICRO_BATCHES))]
    grad_accum: u32,
    /// Steps to time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u64).range(1..=MOST_STEPS))]
    steps: u64,
    /// Directory to write bench.json and report.html to
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Measure steps of other shapes, too
    ///
    /// They have 1 to 32 sequences of 512 to 8192 tokens, as far as memory has room. A cache is of sequences of one length.
    #[arg(long, conflicts_with = "teacher_cache")]
    sweep: bool,
    /// Measure every variant of every launch that has a choice, and write the times to the table FILE (the built-in
    /// one is kernels/src/tuned.txt)
    #[arg(long, value_name = "FILE", help_heading = "Output", conflicts_with_all = ["out", "json", "sweep"])]
    tune: Option<PathBuf>,
    /// Measure kernels whose keys start with this alone
    ///
    /// Each kernel of the bundle is launched at --batch-size times --seq-len tokens, hidden size 4096, vocabulary 131072. On the
    /// simulated GPU, unless --batch-size or --seq-len is given, it is the largest launch that selftest checks.
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["teacher", "teacher_cache", "student", "model", "out", "sweep", "tune"])]
    kernel: Option<String>,
    #[command(flatten)]
    decoding: DecodingOptions,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The options of which either has completions written.
const COMPLETES: &str = "completes";

/// Tokens of a generation where nothing is said.
const PROMPT_TOKENS: u32 = 256;
const MAX_TOKENS: u32 = 768;

/// Measures a generation.
fn generate(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    let Arguments { measured, decoding, out, json, .. } = arguments;
    if measured.has("seq_len") {
        return Err(Failure::usage(
            "--seq-len: with --generate it is the sum of --prompt-tokens and --max-tokens: leave it out",
        ));
    }
    let mut options = measured.into_options()?;
    // A generation has them, too.
    options.given.retain(|name, _| !["prompt_tokens", "max_tokens"].contains(&name.as_str()));
    let (prompt_tokens, max_tokens) = (options.on_policy.prompt_tokens, options.on_policy.max_tokens);
    let (prompt_tokens, max_tokens) = (prompt_tokens.unwrap_or(PROMPT_TOKENS), max_tokens.unwrap_or(MAX_TOKENS));
    let forward = decoding.forward(&options)?;
    if let Some(out) = &out {
        let inputs = [&forward.model].into_iter().chain(&forward.adapter).chain(&forward.target.kernels.bundle);
        check_directory(out, Existing::Replace, &inputs.map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    let request = GenerationBench { forward, slots: decoding.slots, prompt_tokens, max_tokens };
    end(&bench::bench_generation(&request, startup, reader(json))?, out.as_deref(), json)
}

fn reader(json: bool) -> Reader {
    if json { Reader::Program } else { Reader::Person }
}

/// Writes and prints what was measured.
fn end(record: &Record<impl Measured>, out: Option<&Path>, json: bool) -> Result<(), Failure> {
    out.iter().try_for_each(|out| record.write(out))?;
    print_as(json, record, record);
    Ok(())
}

pub fn run(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    arguments.verbose.start();
    if arguments.decoding.generate {
        return generate(arguments, startup);
    }
    if let Some(prefix) = &arguments.kernel {
        let StepMeasurement { measurement, .. } = arguments.measured.values()?;
        let Measurement { shape: ShapeOptions { batch_size, seq_len }, target, .. } = measurement;
        let batch = Batch { sequences: batch_size, seq_len };
        let asked = ["batch_size", "seq_len"].iter().any(|name| arguments.measured.has(name));
        let batch = if asked { TimedBatch::Asked(batch) } else { TimedBatch::Default(batch) };
        let timed = bench::time_kernels(&target, prefix, batch)?;
        print_as(arguments.json, &timed, timed.iter().format("\n"));
        return Ok(());
    }
    let config = Options {
        steps: arguments.steps,
        division: DivisionOptions { grad_accum: Some(arguments.grad_accum), replicas: None },
        ..arguments.measured.into_options()?
    };
    let config = config.planned()?;
    if let Some(file) = &arguments.tune {
        let launches = bench::tune(&config, file, startup)?;
        say!("{launches} launches measured: {}", file.display());
        return Ok(());
    }
    if let Some(out) = &arguments.out {
        // Better known now than when all is measured.
        check_directory(out, Existing::Replace, &config.inputs())?;
    }
    let Arguments { out, json, sweep, .. } = arguments;
    if config.on_policy.is_some() {
        return end(&bench::bench_rollouts(&config, startup, reader(json))?, out.as_deref(), json);
    }
    let mut record = bench::bench(&config, startup, reader(json))?;
    if sweep {
        record.measured.sweep = Some(bench::sweep(&config)?);
    }
    end(&record, out.as_deref(), json)
}
