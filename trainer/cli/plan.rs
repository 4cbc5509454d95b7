//! `precast plan`

use std::path::Path;

use clap::{Args, Subcommand};
use precast_kernels::Arch;
use precast_plan::Recipe;
use precast_plan::chips::Chip;

use super::either::Either;
use super::help;
use super::output::print_as;
use crate::options::groups::values::count;
use crate::options::{DeviceOptions, FlagsAndFile, ModelOptions, Purpose, card, size};
use crate::programs::generate::DecodingOptions;
use crate::programs::plan::{BuiltIn, Detail, GenerationReport, Limit, Report, Target};
use crate::ranks::{MOST_RANKS, Place, Ranks};
use crate::run::failure::Failure;

pub type Arguments = Either<Planned, What>;

#[derive(Subcommand)]
pub enum What {
    /// Say whether a generation fits into memory, and the least time of its steps
    #[command(mut_args(help::plain))]
    Generate(Generate),
}

/// A run to plan.
#[derive(Args)]
pub struct Planned {
    #[command(flatten)]
    options: FlagsAndFile,
    /// Plan for rank 0 of so many GPUs: no other takes more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    gpus: Option<u32>,
    #[command(flatten)]
    asked: Asked,
}

impl Planned {
    /// Returns true if nothing says which run is meant.
    fn is_bare(&self) -> bool {
        let Self { options, gpus, asked: Asked { arch, memory, card, check, verbose, json: _ } } = self;
        let ModelOptions { teacher, teacher_cache, student, model } = &options.options.models;
        let names = [student, model, &options.config].into_iter().any(Option::is_some)
            || [teacher, teacher_cache].into_iter().any(|list| !list.is_empty());
        !(names || gpus.is_some() || arch.is_some() || memory.is_some() || card.is_some() || *check || *verbose)
    }
}

impl Arguments {
    pub fn file(&self) -> Option<&Path> {
        if let Self::Itself(planned) = self { planned.options.config.as_deref() } else { None }
    }
}

/// A generation to plan.
#[derive(Args)]
pub struct Generate {
    #[command(flatten)]
    decoding: DecodingOptions,
    /// Tokens of each slot
    #[arg(long, value_name = "S", default_value_t = 1024, value_parser = count(Recipe::MOST_TOKENS))]
    seq_len: u32,
    #[command(flatten)]
    asked: Asked,
}

/// What to compare a plan with, and what to say of it.
#[derive(Args)]
struct Asked {
    /// Plan for this architecture instead of the device's
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,
    /// Memory to fit into, as 24GiB, instead of what is free
    ///
    /// Bytes, or a number of KiB, MiB or GiB. A plan that does not fit names the least changes that do, and exits with
    /// 4.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, conflicts_with = "card")]
    memory: Option<u64>,
    /// GPU to plan for and to fit into, as 4090
    ///
    /// A name in the table of docs/reference/devices.md, or a part of one that is no other's. Its memory is what a
    /// driver reports or a data sheet says, less what stays with the system.
    #[arg(long, value_name = "NAME", value_parser = card::card)]
    card: Option<&'static Chip>,
    /// Exit with 3 where kernels of the run are missing
    #[arg(long)]
    check: bool,
    /// List phases, launches and kernels
    #[arg(long, help_heading = "Output")]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Asked {
    fn target(&self, device: &DeviceOptions) -> Result<Target, Failure> {
        let limit = match (self.memory, self.card) {
            (Some(bytes), _) => Limit::Memory(bytes),
            (None, Some(chip)) => Limit::Card(chip),
            (None, None) => Limit::Device,
        };
        Target::find(device, self.arch, limit)
    }

    fn detail(&self) -> Detail {
        if self.verbose { Detail::Full } else { Detail::Brief }
    }
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments {
        Either::Itself(planned) if planned.is_bare() => {
            let built_in = BuiltIn::find()?;
            print_as(planned.asked.json, &built_in, &built_in);
            Ok(())
        }
        Either::Itself(Planned { options, gpus, asked }) => {
            let place = Place { ranks: gpus.unwrap_or(1), ..Place::default() };
            let config = options.options.resolve(Purpose::Plan, Ranks::of(&place).share(1), None)?;
            let report = Report::of(&config, &asked.target(&config.target)?)?;
            print_as(asked.json, &report.to_json(), report.text(asked.detail()));
            report.check()?;
            if asked.check { report.check_kernels() } else { Ok(()) }
        }
        Either::Sub(What::Generate(Generate { decoding, seq_len, asked })) => {
            let report = GenerationReport::of(&decoding, seq_len, &asked.target(&decoding.forward.target)?)?;
            print_as(asked.json, &report.to_json(), report.text(asked.detail()));
            report.check()?;
            if asked.check { report.check_kernels() } else { Ok(()) }
        }
    }
}
