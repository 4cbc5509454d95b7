//! `precast-aot`: build, verify and inspect kernel bundles.

mod cli;

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Parser;
use precast_aot::toolchain::pins;
use precast_fatbins::bug::{self, Program};
use precast_fatbins::stdout;

fn main() -> ExitCode {
    let facts = || format!("compiler: NVRTC {} unless another is named", pins::NVRTC.version);
    bug::main(Program { name: "precast-aot", version: env!("CARGO_PKG_VERSION"), facts }, run)
}

fn run() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => Some(arguments),
        Err(usage) if usage.use_stderr() => usage.exit(),
        Err(help) => {
            stdout::wrote(help.print());
            None
        }
    };
    // rayon starts as many threads as $RAYON_NUM_THREADS says, however many that are.
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let wanted =
        std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok()).filter(|wanted| *wanted > 0);
    let threads = wanted.unwrap_or(cores).min(cores);
    if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        eprintln!("error: cannot start threads: {error}");
        return ExitCode::FAILURE;
    }
    match arguments.map_or(Ok(()), cli::run).and_then(|()| cli::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
