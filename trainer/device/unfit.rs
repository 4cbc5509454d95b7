//! The refusal of a plan that does not fit: in bytes, with what would.

use std::fmt;

use crate::device::memory::{Memory, Takes};
use crate::options::SlotsUnfit;

/// Words of a refusal.
#[derive(Clone, Debug, Default)]
pub struct Remedy {
    /// Names what does not fit.
    pub what: String,
    pub advice: String,
    /// Slots that do not fit.
    pub slots: Option<SlotsUnfit>,
}

/// A plan that takes more memory than there is.
#[derive(Clone, Debug)]
pub struct Unfit {
    pub takes: Takes,
    pub memory: Memory,
    /// Table of the memory that it takes; empty where it has been shown.
    pub table: String,
    pub remedy: Remedy,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { takes, memory, table, remedy: Remedy { what, advice, .. } } = self;
        let what = if what.is_empty() { "this run does not fit" } else { what };
        let parts = match (memory.kernels, takes.host_bytes) {
            (0, 0) => format!("{} bytes of device memory", takes.bytes),
            (kernels, _) => format!(
                "{} bytes ({} of device memory, up to {kernels} for kernels{})",
                takes.bytes + kernels + takes.host_bytes,
                takes.bytes,
                takes.beside(|bytes| bytes.to_string())
            ),
        };
        write!(f, "{what}: it needs {parts}, and {memory}.")?;
        [table, advice].into_iter().filter(|part| !part.is_empty()).try_for_each(|part| write!(f, "\n{part}"))
    }
}
