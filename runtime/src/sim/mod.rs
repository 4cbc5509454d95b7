//! A simulated GPU: same checks, plan and parameter blocks, with each launch executed by its host reference.
//!
//! Strict where hardware is lax: every access is checked against the live allocations, fresh memory holds NaNs,
//! operands may not overlap, and a parameter block must have the size that the module declares. Faults can be injected,
//! among them a GB10 context poisoned by a late module load.

mod gpu;
mod memory;

pub use gpu::{Faults, Sim};
