//! `precast`: distil a large model into a small one, with every kernel loaded before the first step.

use std::process::ExitCode;

fn main() -> ExitCode {
    match precast::cli::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
