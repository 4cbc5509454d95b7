//! `precast distill` and `precast train`

use clap::{Arg, Args};
use precast_kernels::Arch;
use precast_runtime::Placement;

use super::plan;
use crate::base::startup::Startup;
use crate::base::stop::end_at_signal;
use crate::base::verbose::Verbose;
use crate::options::{FlagsAndFile, GivenShare, Options, Takes, UsageError, is_of_teacher, missing};
use crate::programs::distill::{self, Mode};
use crate::programs::failure::Failure;
use crate::programs::replay;
use crate::ranks::{self, Gpus, Place, Ranks};
use crate::run::out::Start;

#[derive(Args)]
pub struct Arguments<T: Takes> {
    #[command(flatten)]
    options: FlagsAndFile<T>,
    /// Continue the run in --out from its last checkpoint. Models, tokenizer, data, objective, optimizer, schedule, batch,
    /// precision and shuffle must be the same; device, kernels, logging and checkpoints may change, and so may --steps: under
    /// cosine only where it is given on the command line
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,
    /// Replace the run in --out: once every check has passed, the old run is moved to DIR.replaced-N, and it is deleted at
    /// the new run's first checkpoint. Files that it did not write are refused by name
    #[arg(long)]
    overwrite: bool,
    /// Check models, data and the checkpoint to resume from, print the plan, and stop without loading or writing anything
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: plan for this architecture instead of the device's
    #[arg(long, requires = "dry_run", value_name = "ARCH")]
    arch: Option<Arch>,
    /// GPUs of this host to train on, one process each. Not needed under torchrun, srun or mpirun: each process that they start
    /// is a rank
    #[arg(long, value_name = "N|all")]
    gpus: Option<Gpus>,
    /// Address where the ranks of a launcher meet, if it does not give one: the host of rank 0, and a port that is free there
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<String>,
    #[command(flatten)]
    verbose: Verbose,
    /// Give each buffer its own allocation, so that memory checkers see overruns
    #[arg(long, hide = true)]
    separate_allocations: bool,
}

/// The options of `precast distill`: all but what is of `precast train` are shown.
pub struct Distill;

impl Takes for Distill {
    fn adapt(option: Arg) -> Arg {
        if option.get_id() == "model" { option.hide(true) } else { option }
    }
}

/// The options of `precast train`: none of a teacher is shown. What is hidden is refused by its name.
pub struct Train;

impl Takes for Train {
    fn adapt(option: Arg) -> Arg {
        let model =
            "The model to train: a Hugging Face directory, a .gguf or an .apr file (make one with `precast init`)";
        match option.get_id().as_str() {
            "model" => option.help(model),
            name if is_of_teacher(name) => option.hide(true),
            _ => option,
        }
    }
}

/// `precast distill`: a student learns from a teacher.
pub fn distill(arguments: Arguments<Distill>, startup: Startup) -> Result<(), Failure> {
    run(arguments, startup, |options| match options.model {
        Some(_) => {
            Err(usage("distill takes --teacher and --student; `precast train --model` trains without a teacher"))
        }
        None => Ok(()),
    })
}

/// `precast train`: a model learns from data alone.
pub fn train(arguments: Arguments<Train>, startup: Startup) -> Result<(), Failure> {
    run(arguments, startup, |Options { model, teacher, student, .. }| match model {
        Some(_) => Ok(()),
        None if teacher.is_some() || student.is_some() => {
            Err(usage("train has no teacher: give --model; `precast distill` takes --teacher and --student"))
        }
        None => Err(missing("model")),
    })
}

fn usage(what: &str) -> UsageError {
    UsageError(what.to_owned())
}

fn run<T: Takes>(
    arguments: Arguments<T>,
    startup: Startup,
    check: impl Fn(&Options) -> Result<(), UsageError>,
) -> Result<(), Failure> {
    arguments.verbose.start();
    let start = match (arguments.resume, arguments.overwrite) {
        (true, _) => Start::Resume,
        (_, true) => Start::Overwrite,
        _ => Start::Fresh,
    };
    let placement = if arguments.separate_allocations { Placement::Separate } else { Placement::Arena };
    let config_file = arguments.options.config.clone();
    if let Some(hang) = replay::requested() {
        let options = arguments.options.options();
        let config = options.and_then(|options| Ok((GivenShare::of(&options), options.complete(true)?)));
        return Err(replay::replay(config.map(|(given, config)| (config, given)), hang));
    }
    let options = arguments.options.options()?;
    check(&options)?;
    let steps = options.given.get("steps").copied();
    let share = GivenShare::of(&options);
    let config = options.complete(true)?;
    let place = match (arguments.dry_run, arguments.gpus) {
        (true, Some(Gpus::Count(ranks))) => Place { ranks, ..Place::default() },
        (true, _) => Place::default(),
        (false, gpus) => ranks::start(gpus, arguments.rendezvous.as_deref(), config.settings.device)?,
    };
    let mode = Mode { start, steps, config_file, placement, place, share };
    if arguments.dry_run {
        end_at_signal()?;
        let mut config = config;
        config.take_share(Ranks::of(&mode.place).share(1), share, None)?;
        let target = plan::target(&config, arguments.arch)?;
        distill::check(&config, &mode)?;
        return plan::show(&config, &target, false);
    }
    distill::distill(&config, &mode, startup)
}
