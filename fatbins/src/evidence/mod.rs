//! Evidence of a chip's results: a line of JSON, and a line with its digest.

mod launch;
mod record;

pub use launch::{Launch, short};
pub use record::{Chip, Evidence, EvidenceError, Golden, Kernel, MOST_BYTES, PRECISIONS, Program, VERSION};
