//! `precast-aot`: build, verify and inspect kernel bundles.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use precast_aot::toolchain::pins;
use precast_system::bug::{self, Program};
use precast_system::terminal::tell;
use precast_system::{built, files, stdout, threads};

fn main() -> ExitCode {
    let facts = || format!("compiler: NVRTC {} unless another is named", pins::NVRTC.version);
    bug::main(Program { name: "precast-aot", version: env!("CARGO_PKG_VERSION"), facts }, run)
}

fn run() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => Some(arguments),
        Err(usage) if usage.use_stderr() => usage.exit(),
        Err(asked) => {
            match asked.kind() == ErrorKind::DisplayVersion && built::is_verbose() {
                true => cli::version(),
                false => stdout::wrote(asked.print()),
            }
            None
        }
    };
    let started = files::outlive_limit().map_err(|error| format!("cannot take over SIGXFSZ: {error}"));
    if let Err(error) = started.and_then(|()| threads::start()) {
        tell(format_args!("error: {error}"));
        return ExitCode::FAILURE;
    }
    match arguments.map_or(Ok(()), cli::run).and_then(|()| cli::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(format_args!("error: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}
