//! Who may give an option another value.

use clap::builder::ArgExt;

/// Who may give an option another value than the run was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// Nobody: it decides the weights. An option that says nothing is one of these.
    #[default]
    Never,
    /// A run that continues. Every rank has the same.
    AtResume,
    /// A run that continues, and each host: it says where something is, whose digest is compared.
    OnAnyHost,
}

impl ArgExt for Change {}
