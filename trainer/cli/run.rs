//! Runs the command that the command line names.

use clap::error::{Error, ErrorKind};
use precast_system::{built, say, stdout};

use super::command::{Arguments, Command};
use super::output::print_json;
use super::{
    bench, cache, data, distill, doctor, eval, evidence, export, generate, init, kernels, log, merge, plan, renamed,
    selftest, shell, smoke, version,
};
use crate::base::startup_times::Startup;
use crate::base::stop::end_at_signal;
use crate::inputs::checkpoint::Checkpoint;
use crate::options::FileOptions;
use crate::run::failure::Failure;
use crate::run::outcome::RunFault;
use crate::run::report;
use crate::run::report_file::REPORT;

/// Parses the command line and runs it.
///
/// # Errors
/// [`Failure`] with its exit code.
pub fn main() -> Result<(), Failure> {
    let startup = Startup::default();
    let arguments = match FileOptions::default().parse::<Arguments>() {
        Ok(arguments) => arguments,
        Err(usage) if usage.use_stderr() => {
            return Err(renamed::renamed(std::env::args_os()).map_or_else(|| usage.exit(), Failure::from));
        }
        Err(asked) if asked.kind() == ErrorKind::DisplayVersion && built::is_verbose() => return version::run(),
        Err(help) => {
            stdout::wrote(help.print());
            return Ok(());
        }
    };
    let arguments = match arguments.command.file() {
        Some(file) => FileOptions::read(file)?.parse().unwrap_or_else(|error: Error| error.exit()),
        None => arguments,
    };
    // Those with ranks end all of them.
    if !matches!(arguments.command, Command::Distill(_) | Command::Train(_) | Command::Cache(_)) {
        end_at_signal()?;
    }
    match arguments.command {
        Command::Distill(arguments) => distill::distill(*arguments, startup),
        Command::Train(arguments) => distill::train(*arguments, startup),
        Command::Cache(arguments) => cache::run(*arguments),
        Command::Data(arguments) => data::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Config { model } => {
            print_json(&Checkpoint::open(&model)?.json);
            Ok(())
        }
        Command::Plan(arguments) => plan::run(*arguments),
        Command::Bench(arguments) => bench::run(arguments, startup),
        Command::Eval(arguments) => eval::run(*arguments),
        Command::Generate(arguments) => generate::run(arguments),
        Command::Doctor(arguments) => doctor::run(*arguments),
        Command::Evidence(arguments) => evidence::run(arguments),
        Command::Kernels(arguments) => kernels::run(arguments),
        Command::Selftest(arguments) => selftest::run(arguments),
        Command::Smoke(arguments) => smoke::run(arguments),
        Command::Completions { shell } => {
            shell::completions(shell);
            Ok(())
        }
        Command::Man { directory } => shell::man(&directory),
        Command::Bug => panic!("asked for by name"),
        Command::Log(arguments) => log::run(arguments),
        Command::Report { run } => {
            report::write(&run)?;
            say!("{}", run.join(REPORT).display());
            Ok(())
        }
    }
}

/// Ends the program's output.
///
/// # Errors
/// [`Failure`] where a line of it did not arrive.
pub fn finish() -> Result<(), Failure> {
    stdout::finish().map_err(|error| RunFault(format!("cannot write to standard output: {error}")).into())
}
