//! Ends this process at a chosen change of a file, or has the change fail, to test what that leaves behind. For tests
//! only.
//!
//! With `PRECAST_KILL_AT=N` in the environment, the N-th write, flush, rename or removal of this module (from 1) is
//! skipped and the process ends as by `kill -9`. With `PRECAST_FAIL_AT=N` it returns an error: of a write that the disk
//! is full, of anything else that the disk fails. Of a write, the first half is done.

use std::fs::File;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use super::limit;

#[derive(Clone, Copy)]
enum Fault {
    Kill,
    Error(Errno),
}

impl Fault {
    fn happen(self) -> io::Result<()> {
        match self {
            Self::Error(error) => Err(error.into()),
            Self::Kill => {
                let _ = kill_process(getpid(), Signal::KILL);
                // Not reached: SIGKILL cannot be handled.
                std::process::abort()
            }
        }
    }
}

/// Counts a change, and returns what is to happen in its place.
fn due(error: Errno) -> Option<Fault> {
    static AT: OnceLock<[Option<u64>; 2]> = OnceLock::new();
    static CHANGES: AtomicU64 = AtomicU64::new(0);
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let at = AT.get_or_init(|| ["PRECAST_KILL_AT", "PRECAST_FAIL_AT"].map(number));
    let change = Some(CHANGES.fetch_add(1, Ordering::Relaxed) + 1);
    let faults = at.iter().zip([Fault::Kill, Fault::Error(error)]);
    faults.into_iter().find(|(at, _)| **at == change).map(|(_, fault)| fault)
}

/// Counts a change that is about to happen.
///
/// # Errors
/// The error that it is to fail with.
pub(super) fn point() -> io::Result<()> {
    due(Errno::IO).map_or(Ok(()), Fault::happen)
}

/// Writes all bytes.
pub(super) fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if let Some(fault) = due(Errno::NOSPC) {
        let _ = file.write_all(&bytes[..bytes.len() / 2]);
        return fault.happen();
    }
    file.write_all(bytes).map_err(limit::named)
}
