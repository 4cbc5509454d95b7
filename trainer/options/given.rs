//! Places where the options of a run are given.

/// The place where an option is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionSource {
    /// On the command line.
    Flag,
    /// In the file that `--config` names.
    File,
}
