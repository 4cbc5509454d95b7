//! DURING the run: verify, load, seal, launch.
//!
//! [`Loading`] loads modules and cannot launch; [`Loading::seal`] turns it into [`Sealed`], which launches and cannot
//! load. Neither this crate nor its dependencies can compile.

#![deny(missing_docs)]

mod activity;
mod communicator;
pub mod cublas;
pub mod cuda;
mod driver;
mod gauge;
pub mod host;
mod loading;
mod loads;
mod modules;
mod permit;
mod sealed;
pub mod selftest;
pub mod sim;

/// Contexts, streams and buffers of [`Modules`], in the version of the crate that it takes.
pub use cudarc;

pub use activity::{Activity, Doing};
pub use communicator::{Communicator, Mesh};
pub use driver::{
    Arrived, Bound, BoundExchange, BoundGemm, BoundLaunch, BoundWork, CublasUse, Device, Driver, DriverError, GraphId,
    KernelId, Launcher, Launches, Memory, MoreMemory, Rows, Ticket, too_old,
};
pub use gauge::{Gauge, GaugeError, Mean, Reading};
pub use loading::{Coverage, LoadError, Loading, Placement, STAGE_BYTES, rows, supported_capabilities};
pub use loads::Load;
pub use modules::{Modules, OnStream};
pub use permit::Permit;
pub use precast_fatbins::{Bundle, embedded};
pub use sealed::Sealed;
