//! Settings of a run besides its configuration.

use std::path::PathBuf;

use precast_runtime::Placement;

use crate::ranks::Place;
use crate::run::out::Start;

/// Settings of a run besides its configuration.
#[derive(Clone, Debug)]
pub struct Mode {
    /// Treatment of a run that is in the output directory.
    pub start: Start,
    /// The file that options were read from.
    pub config_file: Option<PathBuf>,
    /// Give each buffer its own allocation, for memory checkers.
    pub placement: Placement,
    /// Check, and write nothing.
    pub dry_run: bool,
    /// Place of this process among the ranks of the run.
    pub place: Place,
}
