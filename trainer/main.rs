//! `precast`: distil a large model into a small one, with every kernel loaded before the first step.

use std::process::ExitCode;

use precast::inputs::chat;
use precast_system::bug::{self, Program};
use precast_system::{files, threads};

fn main() -> ExitCode {
    let program =
        Program { name: "precast", version: env!("CARGO_PKG_VERSION"), facts: precast::device::bundle::facts };
    bug::main(program, run)
}

fn run() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|command| command == chat::COMMAND) {
        return chat::serve().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let started = files::outlive_limit().map_err(|error| format!("cannot take over SIGXFSZ: {error}"));
    if let Err(error) = started.and_then(|()| threads::start()) {
        precast::base::notes::tell(format_args!("error: {error}"));
        return ExitCode::FAILURE;
    }
    // A run's own failure says more than that its output did not arrive.
    match precast::cli::main().and_then(|()| precast::cli::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.exit_code())
        }
    }
}
