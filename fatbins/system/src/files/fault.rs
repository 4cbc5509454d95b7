//! Kills this process at a chosen change of a file, for tests of what a kill leaves behind.
//!
//! With `PRECAST_KILL_AT=N` in the environment the N-th write, flush, rename or removal that this module does (from 1)
//! is not done and the process ends as by `kill -9`; of a write the first half is done. It has no other use.

use std::fs::File;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

use super::limit;

fn due() -> bool {
    static AT: OnceLock<Option<u64>> = OnceLock::new();
    static CHANGES: AtomicU64 = AtomicU64::new(0);
    let at = AT.get_or_init(|| std::env::var("PRECAST_KILL_AT").ok()?.parse().ok());
    at.is_some_and(|at| CHANGES.fetch_add(1, Ordering::Relaxed) + 1 == at)
}

fn kill() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    // SIGKILL cannot be handled, so this is not reached.
    std::process::abort()
}

/// A change is about to be made.
pub(super) fn point() {
    if due() {
        kill();
    }
}

/// Writes all bytes.
pub(super) fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if due() {
        let _ = file.write_all(&bytes[..bytes.len() / 2]);
        kill();
    }
    file.write_all(bytes).map_err(limit::named)
}
