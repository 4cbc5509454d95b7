//! `precast distill` and `precast train`

use std::path::Path;

use clap::{Arg, Args};
use precast_kernels::Arch;
use precast_plan::Share;
use precast_runtime::Placement;
use precast_system::say;

use crate::base::load_trace::Verbose;
use crate::base::startup_times::Startup;
use crate::base::stop::end_at_signal;
use crate::options::{FlagsAndFile, ModelOptions, Options, Purpose, RUN, is_of_teacher, missing};
use crate::programs::distill::{self, Mode};
use crate::programs::plan::{Detail, Limit, Report, Target};
use crate::ranks::{self, Gpus};
use crate::run::failure::Failure;
use crate::run::out::Start;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    options: FlagsAndFile,
    /// Continue the run in --out from its last checkpoint
    ///
    /// Models, tokenizer, data, objective, optimizer, schedule, batch, precision and shuffle must be the same. Device,
    /// kernels, logging and checkpoints may change, and so may --steps: under cosine only where it is given on the
    /// command line.
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,
    /// Replace the run in --out: once every check has passed, the old run is moved to DIR.replaced-N, and it is deleted
    /// at the new run's first checkpoint. Files of others are refused by name
    #[arg(long, help_heading = RUN)]
    overwrite: bool,
    /// Check models, data and the checkpoint to resume from, print the plan, and stop without loading or writing
    /// anything
    #[arg(long, help_heading = RUN)]
    dry_run: bool,
    /// Print the run.toml of this run, each option that has a value, and stop without opening models, data or a device
    #[arg(long, conflicts_with_all = ["resume", "dry_run"], help_heading = RUN)]
    print_config: bool,
    /// With --dry-run: plan for this architecture instead of the device's
    #[arg(long, requires = "dry_run", help_heading = RUN, value_name = "ARCH")]
    arch: Option<Arch>,
    /// GPUs of this host to train on, one process each. Not needed under torchrun, srun or mpirun: each process that
    /// they start becomes a rank
    #[arg(long, value_name = "N|all", help_heading = "Device")]
    gpus: Option<Gpus>,
    /// Address at which the ranks of a launcher meet, if it gives none: the host of rank 0, and a port that is free
    /// there
    #[arg(long, value_name = "HOST:PORT", help_heading = "Device")]
    rendezvous: Option<String>,
    #[command(flatten)]
    verbose: Verbose,
    /// Give each buffer its own allocation, so that memory checkers see overruns
    #[arg(long, hide = true)]
    separate_allocations: bool,
}

impl Arguments {
    pub fn file(&self) -> Option<&Path> {
        self.options.config.as_deref()
    }
}

/// Hides from `precast distill` the option that is of `precast train`.
pub(super) fn of_distill(option: Arg) -> Arg {
    if option.get_id() == "model" { option.hide(true) } else { option }
}

/// Hides from `precast train` the options of a teacher. One that is hidden is refused by its name.
pub(super) fn of_train(option: Arg) -> Arg {
    let model = "Model to train: a directory, .gguf or .apr";
    match option.get_id().as_str() {
        "model" => option.help(model),
        name if is_of_teacher(name) => option.hide(true),
        _ => option,
    }
}

/// `precast distill`: a student learns from a teacher.
pub fn distill(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    match arguments.options.options.models.model {
        Some(_) => Err(Failure::usage(
            "distill takes --teacher and --student; `precast train --model` trains without a teacher",
        )),
        None => run(arguments, startup),
    }
}

/// `precast train`: a model learns from data alone.
pub fn train(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    let ModelOptions { model, teacher, teacher_cache, student } = &arguments.options.options.models;
    match model {
        Some(_) => run(arguments, startup),
        None if !teacher.is_empty() || !teacher_cache.is_empty() || student.is_some() => {
            Err(Failure::usage("train has no teacher: give --model; `precast distill` takes --teacher and --student"))
        }
        None => Err(missing("model").into()),
    }
}

fn run(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    arguments.verbose.start();
    let start = match (arguments.resume, arguments.overwrite) {
        (true, _) => Start::Resume,
        (_, true) => Start::Overwrite,
        _ => Start::Fresh,
    };
    let placement = if arguments.separate_allocations { Placement::Separate } else { Placement::Arena };
    let config_file = arguments.options.config.clone();
    let options = arguments.options.options;
    if arguments.print_config {
        return print_config(&options, arguments.gpus);
    }
    // Refused before any rank starts.
    let config = options.resolve(Purpose::Run, Share::ALONE, None)?;
    let place = ranks::place(arguments.dry_run, arguments.gpus, arguments.rendezvous.as_deref(), config.target.device)?;
    let mode = Mode { start, config_file, placement, dry_run: arguments.dry_run, place };
    if arguments.dry_run {
        end_at_signal()?;
        let target = Target::find(&config.target, arguments.arch, Limit::Device)?;
        let report = Report::of_read(&distill::check(&options, &mode, startup)?, &target)?;
        let detail = if arguments.verbose.verbose { Detail::Full } else { Detail::Brief };
        say!("{}", report.text(detail));
        return report.check();
    }
    distill::distill(&options, &mode, startup)
}

/// Prints the run.toml of a run on so many GPUs, which decide how a step is divided.
fn print_config(options: &Options, gpus: Option<Gpus>) -> Result<(), Failure> {
    let ranks = match gpus {
        Some(Gpus::Count(ranks)) => ranks,
        Some(Gpus::All) => return Err(Failure::usage("--print-config counts no GPUs: give --gpus their number")),
        None => 1,
    };
    let config = options.resolve(Purpose::Run, Share { ranks, ..Share::ALONE }, None)?;
    say!("{}", config.to_toml()?.trim_end());
    Ok(())
}
