//! Kills this process at a chosen change of a file, to test what a kill leaves behind.
//!
//! With `PRECAST_KILL_AT=N` in the environment, the N-th write, flush, rename or removal of this module (from 1) is
//! skipped and the process ends as by `kill -9`; of a write, the first half is done. For tests only.

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
    // Not reached: SIGKILL cannot be handled.
    std::process::abort()
}

/// Counts a change that is about to happen.
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
