//! Memory of chips that are not at hand.

use std::fmt;

use crate::human_bytes;

const GIB: u64 = 1 << 30;
/// Bytes that stay with the system where host and device share one memory.
const SYSTEM_BYTES: u64 = 8 * GIB;

/// Memory of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipMemory {
    capacity_bytes: u64,
    source: Source,
}

/// Source of a capacity, which says what of it is left for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Total as a driver reported it (`docs/evidence`), of which a context keeps less than 1 GiB.
    Driver,
    /// Data sheet. Driver and context keep some of it: 2 % and at least 1 GiB are assumed.
    DataSheet,
    /// Data sheet of GDDR with ECC, which is on by default and keeps a sixteenth.
    DataSheetEcc,
    /// Data sheet, of a memory that the host shares.
    Host,
}

impl ChipMemory {
    /// Takes the bytes that a driver reported as total.
    pub(crate) const fn reported(total_bytes: u64) -> Self {
        Self { capacity_bytes: total_bytes, source: Source::Driver }
    }

    /// Takes the capacity of a data sheet, whose GB are GiB.
    pub(crate) const fn published(gib: u64) -> Self {
        Self { capacity_bytes: gib * GIB, source: Source::DataSheet }
    }

    /// Takes the capacity of GDDR with ECC.
    pub(crate) const fn published_with_ecc(gib: u64) -> Self {
        Self { capacity_bytes: gib * GIB, source: Source::DataSheetEcc }
    }

    /// Takes the bytes of a memory that host and device share.
    pub(crate) const fn shared(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, source: Source::Host }
    }

    /// Returns the bytes that a run can take.
    pub fn bytes(self) -> u64 {
        let left = |bytes: u64| bytes - (bytes / 50).max(GIB);
        let capacity = self.capacity_bytes;
        match self.source {
            Source::Driver => capacity - GIB,
            Source::DataSheet => left(capacity),
            Source::DataSheetEcc => left(capacity - capacity / 16),
            Source::Host => capacity - SYSTEM_BYTES,
        }
    }

    /// True if it is the host's, too.
    pub fn is_shared(self) -> bool {
        self.source == Source::Host
    }
}

impl fmt::Display for ChipMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacity = human_bytes(self.capacity_bytes);
        match self.source {
            Source::Driver => write!(f, "{capacity} by its driver, less 1 GiB for a context"),
            Source::DataSheet => write!(f, "{capacity} by its data sheet, less driver and context, not measured"),
            Source::DataSheetEcc => {
                write!(f, "{capacity} by its data sheet, less ECC, driver and context, not measured")
            }
            Source::Host => {
                write!(f, "{capacity} of host memory by its data sheet, less 8 GiB for the system, not measured")
            }
        }
    }
}
