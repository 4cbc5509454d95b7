//! Sequences decoded on a sealed device: `schedule` says which rows are computed next, and `slots` writes and reads
//! these.

mod error;
pub(crate) mod schedule;
mod slots;

pub use error::DecodeError;
pub(crate) use slots::DecodingDevice;
