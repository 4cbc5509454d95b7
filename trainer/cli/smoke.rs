//! `precast smoke`

use clap::{Args, value_parser};
use precast_system::say;

use crate::options::groups::values::{MOST_STEPS, above_zero};
use crate::options::{Measurement, OptimizerOptions, Options, OrderOptions};
use crate::programs::smoke::{LEAST_STEPS, smoke};
use crate::run::failure::Failure;
use crate::run::outcome::RunFault;

#[derive(Args)]
#[command(
    mut_arg("teacher_cache", |option| option.hide(true)),
    // A batch that the simulated GPU trains on in seconds, and every model has room for.
    mut_arg("batch_size", |option| option.default_value("2")),
    mut_arg("seq_len", |option| option.default_value("256"))
)]
pub struct Arguments {
    #[command(flatten)]
    measured: Measurement,
    /// Optimizer steps
    #[arg(long, value_name = "N", default_value_t = 50, value_parser =
        value_parser!(u64).range(LEAST_STEPS..=MOST_STEPS))]
    steps: u64,
    /// Peak learning rate
    ///
    /// Default: 1 / the student's hidden size, of an adapter 1 / (8 x rank x scale).
    #[arg(long, value_name = "X", value_parser = above_zero)]
    lr: Option<f64>,
    /// Seed of batch, weights and new adapter
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { measured, steps, lr, seed } = arguments;
    let options = measured.into_options()?;
    if !options.models.teacher_cache.is_empty() {
        return Err(Failure::usage(
            "smoke trains on a batch of its own, which no cache has: give --teacher in place of --teacher-cache",
        ));
    }
    let optimizer = OptimizerOptions { warmup: LEAST_STEPS / 2, ..options.optimizer };
    let order = OrderOptions { seed, ..options.order };
    let record = smoke(Options { steps: steps.into(), optimizer, order, ..options }.planned()?, lr)?;
    // A line for programs: everything else goes to standard error.
    say!("{}", serde_json::to_string(&record).expect("plain data serializes"));
    record.reason.map_or(Ok(()), |reason| Err(RunFault(format!("smoke: {reason}")).into()))
}
