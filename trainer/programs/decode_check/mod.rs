//! `precast selftest --model`: proves on a device that decoding has the bits of the forward pass.
//!
//! Sequences of random tokens are computed whole, and their logits kept. Then their prompts fill a pool of keys and
//! values, every other token is decoded, and a kernel compares all its logits. `sequences` says which rows are
//! computed, `checker` is the device.

mod check;
mod checker;
mod compared;
mod request;
mod sequences;

pub use check::check_decoding;
pub use checker::DecodeChecker;
pub use compared::{Compared, DifferingToken};
pub use request::DecodeCheck;
pub use sequences::{CheckedRow, CheckedSequence, decoded, prompts, sequences};
