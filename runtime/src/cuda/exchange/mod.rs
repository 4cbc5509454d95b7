//! Exchanges between ranks: how a sequence is divided at them, what moves their bytes, and what waits for them.

mod beside;
mod copies;
pub mod nccl;
mod parts;
mod ranks;
mod waits;

pub(super) use beside::Beside;
pub(super) use parts::{Part, divide, each_node};
pub use ranks::{Abort, AllGather};
pub(super) use ranks::{Prepared, Ranks};
pub(super) use waits::{Event, Waits};
