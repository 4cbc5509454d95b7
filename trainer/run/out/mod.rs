//! The output directory of a run: one process uses it, one run owns it, and what is not of a run stays.

mod directory;
mod owned;
mod paths;
mod start;

pub use directory::Out;
pub use paths::{check_directory, check_file, refuse_inputs, refuse_within};
pub use start::Start;
