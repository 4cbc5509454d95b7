//! Why a run has no device, no kernels or no room.

use std::path::PathBuf;

use precast_plan::{MemoryTable, Plan, PlanError};
use precast_runtime::cublas::CublasError;
use precast_runtime::{Device, DriverError, LoadError};

use crate::base::io::IoError;
use crate::base::stop::Stopped;
use crate::inputs::checkpoint::CheckpointError;
use crate::inputs::teacher_cache::CacheError;
use crate::options::{Advised, UsageError};
use crate::ranks::RankError;

/// A device that does not compute what it is asked for.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum DeviceError {
    /// Kernels are missing or a bundle must not be used.
    #[error("{}{}", .0, .0.options())]
    Load(#[from] LoadError),
    /// A bundle must not be used, or is not where it is named.
    #[error("{0}")]
    Bundle(String),
    /// A bundle file does not hold the kernels of the run.
    #[error("{}: {error}", path.display())]
    NotInBundle {
        path: PathBuf,
        /// The kernels that it lacks.
        error: Box<LoadError>,
    },
    /// There is no cuBLASLt that a run can use, and it asks for one.
    #[error("{}{}", .0, .0.options())]
    Cublas(#[from] CublasError),
    /// The run needs more memory than there is.
    #[error(
        "this run needs {needed} bytes of device memory and {device} has {free} free.\n{table}\n{int8}\
         Use {first}--recompute blocks, or a smaller --batch-size or --seq-len (and --grad-accum to keep the step's tokens)"
    )]
    Memory {
        /// By the plan.
        needed: u64,
        /// On the device.
        free: u64,
        device: String,
        /// Table of the memory that the run needs.
        table: String,
        /// A line on the memory with weights in 8 bits; empty where that cannot be.
        int8: String,
        /// The advice that comes first; empty, or to keep the student as its file holds it.
        first: &'static str,
    },
    /// The run needs more of a memory that host and device share than there is.
    #[error(
        "{reason}\nEnd other programs, use {first}--recompute blocks, or a smaller --batch-size or --seq-len (and --grad-accum to keep \
         the step's tokens)"
    )]
    OneMemory {
        /// Lists what takes how much, and what there is.
        reason: String,
        /// The advice that comes first, as in [`Self::Memory`].
        first: &'static str,
    },
    /// The run does not fit in any form, or there is no GPU to fit into.
    #[error("{0}")]
    Unfit(String),
    /// The device or its driver failed.
    #[error("{}{}", .0, .0.options())]
    Driver(#[from] DriverError),
    /// The system gives no thread.
    Io(#[from] IoError),
    /// Options ask for what cannot be.
    Usage(#[from] UsageError),
    /// Model and run do not go together.
    Plan(#[from] PlanError),
    /// A model or an adapter cannot be read.
    Checkpoint(#[from] CheckpointError),
    /// A teacher's cache cannot be used.
    Cache(#[from] CacheError),
    /// Ranks are not connected.
    Rank(#[from] RankError),
    /// A signal came before all weights were sent.
    Stopped(#[from] Stopped),
}

impl DeviceError {
    /// Replaces the advice of a run by `what` does not fit and what does, for commands with other remedies.
    #[must_use]
    pub(crate) fn unfit(self, what: &str) -> Self {
        match self {
            Self::Memory { needed, free, device, table, .. } => Self::Unfit(format!(
                "{what}: the plan takes {needed} bytes of device memory and {device} has {free} free\n{table}"
            )),
            // Its advice is of runs.
            Self::Unfit(reason) if reason.contains("Use --recompute") => {
                let reason = reason.split("Use --recompute").next().unwrap_or_default();
                Self::Unfit(format!("{what}\n{}", reason.trim_end()))
            }
            Self::OneMemory { reason, .. } => Self::Unfit(format!("{what}\n{reason}")),
            error => error,
        }
    }

    /// Refuses a plan that takes more than is free; `int8` is what that would change.
    pub(crate) fn memory(device: &Device, plan: &Plan, needed: u64, int8: String) -> Self {
        let (free, table) = (device.free_bytes, MemoryTable::of(plan).to_string());
        Self::Memory { needed, free, device: device.name.clone(), table, int8, first: "" }
    }
}
