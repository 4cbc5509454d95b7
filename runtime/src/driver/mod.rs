//! The interface to a GPU, real or simulated.

mod bound;
mod device;
mod error;
mod roles;

pub use bound::{Bound, BoundExchange, BoundGemm, BoundLaunch, BoundWork, KernelId};
pub use device::{Device, Launches, Rows};
pub use error::{DriverError, MoreMemory, too_old};
pub use roles::{Arrived, CublasUse, Driver, GraphId, Launcher, Memory, Ticket};
