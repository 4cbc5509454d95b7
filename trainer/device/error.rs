//! Why a run has no device, no kernels or no room.

use std::path::PathBuf;

use precast_plan::PlanError;
use precast_runtime::cublas::CublasError;
use precast_runtime::{DriverError, LoadError};

use crate::base::io::IoError;
use crate::base::stop::Stopped;
use crate::device::unfit::Unfit;
use crate::inputs::checkpoint::CheckpointError;
use crate::inputs::teacher_cache::CacheError;
use crate::options::{Advised, UsageError};
use crate::ranks::RankError;

/// A device that does not compute what it is asked for.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum DeviceError {
    /// Kernels are missing or a bundle must not be used.
    #[error("{}", .0.advised())]
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
    #[error("{}", .0.advised())]
    Cublas(#[from] CublasError),
    /// The run needs more memory than there is.
    #[error("{0}")]
    Memory(Box<Unfit>),
    /// There is no GPU to run on.
    #[error("{0}")]
    Unfit(String),
    /// The device or its driver failed.
    #[error("{}", .0.advised())]
    Driver(#[from] DriverError),
    /// The system gives no thread.
    Io(#[from] IoError),
    /// Options ask for what cannot be.
    Usage(#[from] UsageError),
    /// Model and run do not go together.
    #[error("{}", .0.advised())]
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

impl From<Unfit> for DeviceError {
    fn from(unfit: Unfit) -> Self {
        Self::Memory(Box::new(unfit))
    }
}
