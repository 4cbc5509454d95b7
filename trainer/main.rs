//! `precast`: distil a large model into a small one, with every kernel loaded before the first step.

use std::process::ExitCode;

use precast_fatbins::bug::{self, Program};
use precast_fatbins::threads;

fn main() -> ExitCode {
    let program = Program { name: "precast", version: env!("CARGO_PKG_VERSION"), facts: precast::bundle::facts };
    bug::main(program, run)
}

fn run() -> ExitCode {
    if let Err(error) = threads::start() {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    // A run's own failure says more than that its output did not arrive.
    match precast::cli::main().and_then(|()| precast::cli::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let stopped = matches!(failure, precast::Failure::Stopped { .. });
            // Of the ranks that end together one says so.
            if !(stopped && precast::note::is_silent() || precast::ranks::is_printed_by_another(&failure)) {
                precast::note::tell(format_args!("{}{failure}", if stopped { "" } else { "error: " }));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
