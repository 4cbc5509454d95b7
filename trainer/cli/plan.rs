//! `precast plan`, and `--dry-run` of `precast distill` and `precast train`

use clap::Args;
use precast_kernels::Arch;
use precast_plan::chips::Chip;

use super::print_as;
use crate::options::{FlagsAndFile, Purpose, RUN, card, size};
use crate::programs::failure::Failure;
use crate::programs::generate::DecodingOptions;
use crate::programs::plan::{Detail, GenerationReport, Limit, Report, Target};
use crate::ranks::{MOST_RANKS, Place, Ranks};

#[derive(Args)]
#[command(mut_arg("generate", |option| option.conflicts_with("gpus")))]
pub struct Arguments {
    #[command(flatten)]
    options: FlagsAndFile,
    /// Plan for this architecture instead of the device's
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,
    /// Plan for rank 0 of so many GPUs: no other takes more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    gpus: Option<u32>,
    /// Memory to fit into, as 24GiB, instead of what is free
    ///
    /// Bytes, or a number of KiB, MiB or GiB. A plan that does not fit names the least changes that do, and exits with 4.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, conflicts_with = "card")]
    memory: Option<u64>,
    /// GPU to plan for and to fit into, as 4090
    ///
    /// A name in the table of docs/reference/devices.md, or a part of one that is no other's. Its memory is what a driver reports
    /// or a data sheet says, less what stays with the system.
    #[arg(long, value_name = "NAME", value_parser = card::card)]
    card: Option<&'static Chip>,
    /// Exit with 3 where kernels of the run are missing
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    decoding: DecodingOptions,
    /// List phases, launches and kernels
    #[arg(long, help_heading = "Output")]
    verbose: bool,
    /// Ignored: a plan runs nothing
    #[arg(long, help_heading = RUN)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let options = arguments.options.options()?;
    let forward = arguments.decoding.generate.then(|| arguments.decoding.forward(&options)).transpose()?;
    let place = Place { ranks: arguments.gpus.unwrap_or(1), ..Place::default() };
    let config = options.resolve(Purpose::Plan, Ranks::of(&place).share(1), None)?;
    let limit = match (arguments.memory, arguments.card) {
        (Some(bytes), _) => Limit::Memory(bytes),
        (None, Some(chip)) => Limit::Card(chip),
        (None, None) => Limit::Device,
    };
    let target = Target::find(&config, arguments.arch, limit)?;
    let detail = if arguments.verbose { Detail::Full } else { Detail::Brief };
    if let Some(forward) = forward {
        let report = GenerationReport::of(&config, &forward, arguments.decoding.slots, &target)?;
        print_as(arguments.json, &report.to_json(), report.text(detail));
        report.check()?;
        return if arguments.check { report.check_kernels() } else { Ok(()) };
    }
    let report = Report::of(&config, &target)?;
    print_as(arguments.json, &report.to_json(), report.text(detail));
    report.check()?;
    if arguments.check { report.check_kernels() } else { Ok(()) }
}
