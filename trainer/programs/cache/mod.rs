//! `precast cache`: the last hidden states of a teacher on data, or its most likely tokens, computed once for all runs
//! that learn from it. `--from` takes log-probabilities that others have computed.

mod directory;
mod engine;
mod fill;
mod filler;
mod from;
mod open;
mod outcome;
mod pass;
mod peers;
mod request;
mod resident;
mod sequences;
mod sweep;

pub use fill::fill;
pub use from::convert;
pub use outcome::{CacheOutcome, Filled, Forecast};
pub use request::CacheRequest;
