//! Ends a process whose device hangs: no call to its driver may return then, so a thread watches that asks the device
//! nothing.

mod hang;
mod still;
mod traced;
mod watcher;

pub use hang::Hang;
pub(crate) use hang::{continuation, what};
pub(crate) use watcher::LAST_WORDS;
pub use watcher::Watch;
