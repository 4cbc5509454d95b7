//! `precast bench`

use std::path::PathBuf;

use clap::Args;
use precast_fatbins::say;
use precast_plan::{Precision, Recompute};

use super::print_json;
use crate::bench;
use crate::bundle::Kernels;
use crate::config::{DeviceChoice, Options};
use crate::error::Failure;
use crate::models::Paths;
use crate::run::out::{check_directory, refuse_inputs};
use crate::startup::Startup;
use crate::verbose::Verbose;
use crate::weight_format::WeightFormat;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    models: Paths,
    /// Sequences in a micro-batch
    #[arg(long, default_value_t = 8, value_name = "B")]
    batch_size: u32,
    /// Tokens in a sequence
    #[arg(long, default_value_t = 1024, value_name = "S")]
    seq_len: u32,
    /// Micro-batches in a step
    #[arg(long, default_value_t = 1, value_name = "A")]
    grad_accum: u32,
    /// Divergence of the teacher's term, as for distill [default: 0]
    #[arg(long, value_name = "X")]
    beta: Option<f32>,
    /// How the teacher's weights live on the device: bf16, stored (a config.json alone stands for a file in the mix of Q4_K_M,
    /// of other random weights) or auto [default: auto]
    #[arg(long, value_name = "FORM")]
    teacher_format: Option<WeightFormat>,
    /// What the backward pass recomputes instead of keeping it: none, norms (the bare flag) or blocks
    #[arg(long, default_value_t = Recompute::None, value_name = "WHAT", num_args = 0..=1, default_missing_value = "norms")]
    recompute: Recompute,
    /// Arithmetic: fp32 or bf16
    #[arg(long, default_value_t = Precision::Bf16, value_name = "P")]
    precision: Precision,
    /// Steps to time
    #[arg(long, default_value_t = 20, value_name = "N")]
    steps: u64,
    /// Also measure steps of 1 to 32 sequences of 512 to 8192 tokens, as far as they fit
    #[arg(long)]
    sweep: bool,
    /// auto, cuda:N, sim, or portable:N: cuda:N with the kernels that every architecture has
    #[arg(long, default_value_t = DeviceChoice::Auto, value_name = "DEVICE")]
    device: DeviceChoice,
    #[command(flatten)]
    kernels: Kernels,
    /// Write bench.json and report.html to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Measure every variant of every launch that has a choice, and write the times to the table FILE (the built-in
    /// one is kernels/src/tuned.txt)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "json", "sweep"])]
    tune: Option<PathBuf>,
    /// Measure no step but the kernels of the bundle whose key starts so, whatever plan has them: the largest launch that
    /// each is checked by
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["teacher", "student", "model", "out", "sweep", "tune"])]
    kernel: Option<String>,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    arguments.verbose.start();
    if let Some(prefix) = &arguments.kernel {
        let timed = bench::time_kernels(arguments.device, &arguments.kernels, prefix)?;
        if arguments.json {
            print_json(&timed);
        } else {
            timed.iter().for_each(|kernel| say!("{kernel}"));
        }
        return Ok(());
    }
    let options = Options {
        batch_size: Some(arguments.batch_size),
        seq_len: Some(arguments.seq_len),
        grad_accum: Some(arguments.grad_accum),
        beta: arguments.beta,
        teacher_format: arguments.teacher_format,
        recompute: Some(arguments.recompute),
        precision: Some(arguments.precision),
        steps: Some(arguments.steps),
        device: Some(arguments.device),
        bundle: arguments.kernels.bundle,
        trusted_key: arguments.kernels.trusted_key,
        ..arguments.models.options()?
    };
    let config = options.complete(false)?;
    if let Some(file) = &arguments.tune {
        let launches = bench::tune(&config, file, startup)?;
        say!("{launches} launches measured: {}", file.display());
        return Ok(());
    }
    if let Some(out) = &arguments.out {
        // Better known now than when all is measured.
        refuse_inputs(out, &config.inputs())?;
        check_directory(out, true)?;
    }
    let mut record = bench::bench(&config, startup, !arguments.json)?;
    if arguments.sweep {
        record.sweep = Some(bench::sweep(&config)?);
    }
    if let Some(out) = &arguments.out {
        record.write(out)?;
    }
    if arguments.json {
        print_json(&record);
    } else {
        say!("{record}");
    }
    Ok(())
}
