//! `precast`: distil a large model into a small one, with every kernel loaded before the first step.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A run's own failure says more than that its output did not arrive.
    match precast::cli::main().and_then(|()| precast::cli::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
