//! `precast`: distil a large model into a small one, with every kernel loaded before the first step.

use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: nothing has started a thread yet.
    unsafe { precast_runtime::cuda::load_eagerly() };
    match precast::cli::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
