//! Checks every kernel of a bundle against its host reference on the device: fresh random inputs, ragged sizes,
//! poisoned outputs, guarded operands.

mod check;
mod launches;
mod prepare;
mod time;

pub use check::{SelftestError, SelftestSum, check, measure};
pub use launches::{Output, SelftestFault, SelftestOutcome, selftest};
pub use time::{Timed, time};
