//! `precast distill`

use std::path::PathBuf;

use clap::Args;
use precast_kernels::Arch;
use precast_runtime::Placement;

use super::plan;
use crate::config::Options;
use crate::distill::{self, Mode};
use crate::error::Failure;
use crate::startup::Startup;
use crate::verbose::Verbose;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    options: Options,
    /// A run.toml with any of the options below under their names; flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Continue the run in --out from its last checkpoint
    #[arg(long)]
    resume: bool,
    /// Check models, data and the checkpoint to resume from, print the plan and stop: nothing is loaded or written
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

pub fn run(arguments: Arguments, startup: Startup) -> Result<(), Failure> {
    arguments.verbose.start();
    let file = arguments.config.as_deref().map(Options::read).transpose()?.unwrap_or_default();
    let options = arguments.options.over(file);
    if arguments.dry_run {
        let config = options.complete(true)?;
        let arch = plan::arch(&config, arguments.arch)?;
        distill::check(&config, arguments.resume)?;
        return plan::show(&config, Some(arch), false);
    }
    let placement = if arguments.separate_allocations { Placement::Separate } else { Placement::Arena };
    distill::distill(&options.complete(true)?, Mode { resume: arguments.resume, placement }, startup)
}
