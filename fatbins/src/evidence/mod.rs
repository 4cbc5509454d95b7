//! Evidence of a chip's results: a line of JSON, and a line with its digest. The repository keeps it in short.

mod record;
mod sketch;
mod summary;

pub use record::{
    Check, Chip, Evidence, EvidenceError, Finding, Golden, KernelSummary, Launch, Loaded, MOST_BYTES, Output,
    PRECISIONS, Program, Results, Timing, VERSION, Whole,
};
pub use sketch::Sketch;
pub use summary::{Faulty, short};
