//! The threads of a program: as many as there are cores.

use std::num::NonZeroUsize;

/// Starts the threads that parallel work runs on: as many as `RAYON_NUM_THREADS` says, or as cores, and never more than cores.
/// Left alone, rayon starts whatever number the variable holds. Call once, before any parallel work.
///
/// # Errors
/// What the system says where it starts no thread.
pub fn start() -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let wanted = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    let threads = wanted.filter(|wanted| *wanted > 0).unwrap_or(cores).min(cores);
    let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    started.map_err(|error| format!("cannot start threads: {error}"))
}
