//! Exchanges between ranks: division of a sequence, transport, and waiting.

mod agreement;
mod beside;
mod copies;
mod flags;
pub mod nccl;
mod parts;
mod ranks;
mod waits;

pub use agreement::AllGather;
pub(super) use beside::Beside;
pub(super) use parts::{SequencePart, divide};
pub use ranks::Abort;
pub(super) use ranks::{Prepared, Ranks};
pub(super) use waits::{Event, Waits};
