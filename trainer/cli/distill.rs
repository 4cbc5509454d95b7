//! `precast distill` and `precast train`

use std::path::PathBuf;

use clap::Args;
use precast_kernels::Arch;
use precast_runtime::Placement;

use super::plan;
use crate::config::Options;
use crate::distill::{self, Mode, Steps};
use crate::error::Failure;
use crate::run::out::Start;
use crate::startup::Startup;
use crate::verbose::Verbose;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    options: Options,
    /// A run.toml with any of these options under their names; flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    #[command(flatten)]
    verbose: Verbose,
    /// Give each buffer its own allocation, so that memory checkers see overruns
    #[arg(long, hide = true)]
    separate_allocations: bool,
}

/// `precast distill`: a student learns from a teacher.
pub fn distill(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    run(arguments, startup, |options| match options.model {
        Some(_) => Err("distill takes --teacher and --student; `precast train --model` trains without a teacher"),
        None => Ok(()),
    })
}

/// `precast train`: a model learns from data alone.
pub fn train(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    run(arguments, startup, |options| match options.model {
        Some(_) => Ok(()),
        None if options.teacher.is_some() || options.student.is_some() => {
            Err("train has no teacher: give --model; `precast distill` takes --teacher and --student")
        }
        None => Err("--model is missing: give it as a flag or in --config run.toml"),
    })
}

/// The options of `precast distill` that are shown: all but what is of `precast train`.
pub fn shown_by_distill(command: clap::Command) -> clap::Command {
    command.mut_arg("model", |argument| argument.hide(true))
}

/// The options of `precast train` that are shown: none of a teacher. What is hidden is refused by its name.
pub fn shown_by_train(command: clap::Command) -> clap::Command {
    let of_teacher = ["teacher", "student", "alpha", "temperature", "beta", "teacher_format", "allow_identical"];
    let hide = |command: clap::Command, name: &str| command.mut_arg(name, |argument| argument.hide(true));
    let model = "The model to train: a Hugging Face directory or a .gguf file (make one with `precast init`)";
    of_teacher.into_iter().fold(command, hide).mut_arg("model", |argument| argument.help(model))
}

fn run(
    arguments: Arguments,
    startup: Startup,
    check: impl Fn(&Options) -> Result<(), &'static str>,
) -> Result<(), Failure> {
    arguments.verbose.start();
    let file = arguments.config.as_deref().map(Options::read).transpose()?.unwrap_or_default();
    let steps = match (arguments.options.steps, file.steps) {
        (Some(_), _) => Steps::Argument,
        (None, Some(_)) => Steps::File,
        (None, None) => Steps::Default,
    };
    let start = match (arguments.resume, arguments.overwrite) {
        (true, _) => Start::Resume,
        (_, true) => Start::Overwrite,
        _ => Start::Fresh,
    };
    let placement = if arguments.separate_allocations { Placement::Separate } else { Placement::Arena };
    let options = arguments.options.over(file);
    check(&options).map_err(|what| Failure::Usage(what.to_owned()))?;
    let config = options.complete(true)?;
    let mode = Mode { start, steps, config_file: arguments.config, placement };
    if arguments.dry_run {
        let target = plan::target(&config, arguments.arch)?;
        distill::check(&config, &mode)?;
        return plan::show(&config, &target, false);
    }
    distill::distill(&config, &mode, startup)
}
