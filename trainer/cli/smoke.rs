//! `precast smoke`

use clap::Args;
use precast_fatbins::say;
use precast_plan::{Precision, Recompute};

use crate::bundle::Kernels;
use crate::config::{DeviceChoice, Options};
use crate::error::Failure;
use crate::models::Paths;
use crate::smoke::{LEAST_STEPS, smoke};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    models: Paths,
    /// Sequences in the batch
    #[arg(long, default_value_t = 8, value_name = "B")]
    batch_size: u32,
    /// Tokens in a sequence
    #[arg(long, default_value_t = 1024, value_name = "S")]
    seq_len: u32,
    /// Optimizer steps
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(LEAST_STEPS..), value_name = "N")]
    steps: u64,
    /// Peak learning rate [default: 1 / the student's hidden size]
    #[arg(long, value_name = "X")]
    lr: Option<f64>,
    /// What the backward pass recomputes instead of keeping it: none, norms (the bare flag) or blocks
    #[arg(long, default_value_t = Recompute::None, value_name = "WHAT", num_args = 0..=1, default_missing_value = "norms")]
    recompute: Recompute,
    /// Arithmetic: fp32 or bf16
    #[arg(long, default_value_t = Precision::Bf16, value_name = "P")]
    precision: Precision,
    /// Seed of the batch and of random weights
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// auto, cuda:N, sim, or portable:N: cuda:N with the kernels that every architecture has
    #[arg(long, default_value_t = DeviceChoice::Auto, value_name = "DEVICE")]
    device: DeviceChoice,
    #[command(flatten)]
    kernels: Kernels,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let options = Options {
        batch_size: Some(arguments.batch_size),
        seq_len: Some(arguments.seq_len),
        steps: Some(arguments.steps),
        lr: arguments.lr,
        warmup: Some(LEAST_STEPS / 2),
        recompute: Some(arguments.recompute),
        precision: Some(arguments.precision),
        seed: Some(arguments.seed),
        device: Some(arguments.device),
        bundle: arguments.kernels.bundle,
        trusted_key: arguments.kernels.trusted_key,
        ..arguments.models.options()?
    };
    let record = smoke(options.complete(false)?, arguments.lr)?;
    // A line for programs: everything else goes to standard error.
    say!("{}", serde_json::to_string(&record).expect("plain data serialises"));
    record.reason.map_or(Ok(()), |reason| Err(Failure::Smoke(reason)))
}
