//! Starts a program's threads: at most one per core.

use std::num::NonZeroUsize;

/// Starts the thread pool of parallel work: `RAYON_NUM_THREADS` threads, or one per core, never more than cores. Left
/// alone, rayon starts any number in the variable. Call once, before any parallel work.
///
/// # Errors
/// The system's message if a thread does not start.
pub fn start() -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let wanted = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    let threads = wanted.filter(|wanted| *wanted > 0).unwrap_or(cores).min(cores);
    let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    started.map_err(|error| format!("cannot start threads: {error}"))
}
