//! `precast bench`

use std::path::PathBuf;

use clap::{Arg, Args};
use precast_kernels::Batch;
use precast_system::say;

use super::print_json;
use crate::base::startup::Startup;
use crate::base::verbose::Verbose;
use crate::options::measurement::{measured, measurement};
use crate::options::{Flags, Settings, Takes};
use crate::programs::bench;
use crate::programs::failure::Failure;
use crate::run::out::{check_directory, refuse_inputs};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    flags: Flags<Bench>,
    /// Also measure steps of 1 to 32 sequences of 512 to 8192 tokens, as far as they fit
    #[arg(long)]
    sweep: bool,
    /// Measure every variant of every launch that has a choice, and write the times to the table FILE (the built-in
    /// one is kernels/src/tuned.txt)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "json", "sweep"])]
    tune: Option<PathBuf>,
    /// Measure no step, only the kernels of the bundle whose keys start with this, whatever plan has them: each at --batch-size
    /// times --seq-len tokens, hidden size 4096, vocabulary 131072. On the simulated GPU, unless one of these is given, the
    /// largest launch that selftest checks it with
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["teacher", "student", "model", "out", "sweep", "tune"])]
    kernel: Option<String>,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What of a run decides how long a step takes.
struct Bench;

impl Takes for Bench {
    const OPTIONS: Option<&'static [&'static str]> = Some(&[
        "teacher",
        "student",
        "model",
        "batch_size",
        "seq_len",
        "grad_accum",
        "beta",
        "teacher_format",
        "lora_rank",
        "lora_alpha",
        "lora_targets",
        "lora_rslora",
        "adapter",
        "student_format",
        "recompute",
        "precision",
        "gemm",
        "steps",
        "device",
        "bundle",
        "trusted_key",
        "out",
    ]);

    fn adapt(option: Arg) -> Arg {
        match option.get_id().as_str() {
            "steps" => option.help("Steps to time").default_value("20"),
            "out" => option.help("Write bench.json and report.html to this directory"),
            _ => measured(option),
        }
    }
}

pub fn run(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    arguments.verbose.start();
    let options = arguments.flags.options()?;
    if let Some(prefix) = &arguments.kernel {
        let Settings { device, kernels, batch_size, seq_len, .. } = &options.settings;
        let batch = Batch { sequences: *batch_size, seq_len: *seq_len };
        let asked = ["batch_size", "seq_len"].iter().any(|name| options.given.contains_key(*name));
        let timed = bench::time_kernels(*device, kernels, prefix, batch, asked)?;
        if arguments.json {
            print_json(&timed);
        } else {
            timed.iter().for_each(|kernel| say!("{kernel}"));
        }
        return Ok(());
    }
    let out = options.out.clone();
    let config = measurement(options)?;
    if let Some(file) = &arguments.tune {
        let launches = bench::tune(&config, file, startup)?;
        say!("{launches} launches measured: {}", file.display());
        return Ok(());
    }
    if let Some(out) = &out {
        // Better known now than when all is measured.
        refuse_inputs(out, &config.inputs())?;
        check_directory(out, true)?;
    }
    let mut record = bench::bench(&config, startup, !arguments.json)?;
    if arguments.sweep {
        record.sweep = Some(bench::sweep(&config)?);
    }
    if let Some(out) = &out {
        record.write(out)?;
    }
    if arguments.json {
        print_json(&record);
    } else {
        say!("{record}");
    }
    Ok(())
}
