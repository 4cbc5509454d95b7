//! Answer of a plan: does the run fit, and if not, by which changes?

use std::fmt;

use precast_plan::human_bytes;
use serde::{Serialize, Serializer};

use super::changes::{Case, Change};
use super::room::{Room, Takes};
use crate::device::DeviceError;
use crate::device::weight_format::{KERNELS_BYTES, beside};
use crate::programs::failure::Failure;

/// Comparison of a run with the memory that there is.
#[derive(Debug, Serialize)]
pub(super) struct Fit {
    #[serde(flatten)]
    pub room: Room,
    pub fits: bool,
    /// Least changes by which a run fits that does not; empty where none of those that are tried does.
    #[serde(rename = "least_change", serialize_with = "first")]
    pub changes: Vec<Change>,
    #[serde(skip)]
    takes: Takes,
}

fn first<S: Serializer>(changes: &[Change], to: S) -> Result<S::Ok, S::Error> {
    changes.first().serialize(to)
}

impl Fit {
    /// Compares a run; none where there is nothing to compare with.
    pub fn of(case: &Case<'_>, takes: Takes) -> Option<Self> {
        let room = case.target.room.clone()?;
        let fits = takes.fits(Some(&room));
        let changes = if fits { Vec::new() } else { case.least_changes() };
        Some(Self { room, fits, changes, takes })
    }

    /// Refuses a run that does not fit.
    pub fn check(&self) -> Result<(), Failure> {
        if self.fits {
            return Ok(());
        }
        let Self { takes: Takes { bytes, host_bytes }, room, .. } = self;
        let advice = match self.changes.first() {
            Some(change) => format!("The least change that fits: {change}"),
            None => NO_CHANGE.to_owned(),
        };
        let message = format!(
            "this run does not fit: it takes {bytes} bytes of device memory, up to {KERNELS_BYTES} for kernels{}, and {room}.\n{advice}",
            beside(*host_bytes)
        );
        Err(DeviceError::Unfit(message).into())
    }
}

const NO_CHANGE: &str = "Neither smaller micro-batches, --recompute, other formats nor shorter sequences make it fit: use smaller \
                         models, or a GPU with more memory";

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { room, fits, changes, takes: Takes { bytes, host_bytes } } = self;
        let host = match host_bytes {
            0 => String::new(),
            bytes => format!(", {} for the host, which shares it", human_bytes(*bytes)),
        };
        let (verdict, takes, kernels) =
            (if *fits { "fits" } else { "does not fit" }, human_bytes(*bytes), human_bytes(KERNELS_BYTES));
        writeln!(f, "{verdict}: {takes}, up to {kernels} for kernels{host}, of {}", room.described())?;
        match (fits, changes.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => writeln!(f, "{NO_CHANGE}"),
            (false, false) => {
                writeln!(f, "with one of these it does:")?;
                changes.iter().try_for_each(|change| writeln!(f, "  {}", change.described()))
            }
        }
    }
}
