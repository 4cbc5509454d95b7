//! Shared by targets: limits of an input, seeds, and inputs that are files.
//!
//! A target is a program: it parses any bytes as a stranger's file, and goes on with what is accepted. None may panic,
//! take more than 10 seconds or [`MOST_BYTES`].

mod allocator;
pub mod data;
mod files;
pub mod kernels;
pub mod model;

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Mutex;

pub use allocator::{MOST_BYTES, end_quietly};
pub use files::{Folder, checkout, fixture, fixtures, joined, parts};

/// Directory that receives the seeds of a target.
const SEEDS: &str = "PRECAST_FUZZ_SEEDS";

/// Message of the last panic: some libraries panic on bad input, and their callers turn that into an error.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Declares a target by its seeds, and by what it does with an input.
#[macro_export]
macro_rules! target {
    ($seeds:expr, $run:expr) => {
        libfuzzer_sys::fuzz_target!(init: $crate::begin($seeds), |data: &[u8]| $crate::check(|| $run(data)));
    };
}

/// Writes the seeds, where they are asked for, says no notes, and leaves panics to [`check`].
pub fn begin(seeds: impl FnOnce() -> Vec<Vec<u8>>) {
    if let Some(directory) = std::env::var_os(SEEDS).map(PathBuf::from) {
        for (index, seed) in seeds().iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{index:04}")), seed).expect("a seed is written");
        }
    }
    precast::base::notes::silence();
    panic::set_hook(Box::new(|panic| {
        let mut message = PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *message = panic.to_string();
    }));
}

/// Aborts where a panic leaves a target.
pub fn check(run: impl FnOnce()) {
    if panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
        eprintln!("{}", PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        std::process::abort();
    }
}
