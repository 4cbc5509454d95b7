//! Treatment of what lies in an output directory.

/// Treatment of an output directory that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Refuses a directory that holds a run.
    Fresh,
    /// Continues the run in it.
    Resume,
    /// Replaces the run in it.
    Overwrite,
}
