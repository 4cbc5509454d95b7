//! `precast plan`, and `--dry-run` of `precast distill` and `precast train`

use clap::Args;
use precast_kernels::Arch;

use super::print_as;
use crate::options::{FlagsAndFile, Purpose, RUN};
use crate::programs::failure::Failure;
use crate::programs::plan::{Report, Target};
use crate::ranks::{MOST_RANKS, Place, Ranks};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    options: FlagsAndFile,
    /// Plan for this architecture instead of the device's
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,
    /// Plan for rank 0 of so many GPUs: no other takes more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    gpus: Option<u32>,
    /// Device memory to fit into, instead of the free memory
    ///
    /// A plan that does not fit exits with 4.
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
    /// Ignored: a plan runs nothing
    #[arg(long, help_heading = RUN)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let options = arguments.options.options()?;
    let place = Place { ranks: arguments.gpus.unwrap_or(1), ..Place::default() };
    let config = options.resolve(Purpose::Plan, Ranks::of(&place).share(1), None)?;
    let target = Target::find(&config, arguments.arch)?.with_memory(arguments.memory);
    let report = Report::of(&config, &target)?;
    print_as(arguments.json, &report.to_json(), &report);
    report.check()
}
