//! `precast log`: becomes `precast-log`, which is in Python, as the packages of trackers are.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::run::failure::Failure;

/// Lies beside this program in an environment of Python, else in PATH.
const PROGRAM: &str = "precast-log";

#[derive(Args)]
pub struct Arguments {
    /// Tracker, whose package is installed beside Precast: pip install 'precast[wandb]'
    #[arg(long, value_name = "TRACKER", value_parser = ["wandb", "mlflow", "trackio"])]
    to: String,
    /// The run's output directory, also while the run is training
    run: PathBuf,
    /// Project of the tracker, or mlflow's experiment [default: precast]
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Name of the run there [default: that of its directory]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Send what is there, and do not wait for the end of the run
    #[arg(long)]
    once: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { to, run, project, name, once } = arguments;
    let beside = std::env::current_exe().map(|own| own.with_file_name(PROGRAM)).unwrap_or_default();
    let program = if beside.exists() { beside } else { PROGRAM.into() };
    let mut command = Command::new(&program);
    command.args(["--to", &to]).args(once.then_some("--once"));
    for (flag, value) in [("--project", project), ("--name", name)] {
        command.args(value.map(|value| format!("{flag}={value}")));
    }
    let error = command.arg("--").arg(run).exec();
    match error.kind() {
        ErrorKind::NotFound => Err(Failure::usage(format!(
            "`precast log` starts {PROGRAM}, which is neither beside this program nor in PATH. The wheel has it: pip \
             install 'precast[{to}]'"
        ))),
        _ => Err(Failure::io("start", program)(error)),
    }
}
