//! `precast-aot`: build, verify and inspect kernel bundles.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use precast_fatbins::stdout;

fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => Some(arguments),
        Err(usage) if usage.use_stderr() => usage.exit(),
        Err(help) => {
            stdout::wrote(help.print());
            None
        }
    };
    match arguments.map_or(Ok(()), cli::run).and_then(|()| cli::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
