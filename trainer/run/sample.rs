//! Completions by a student, for people.

use serde::{Deserialize, Serialize};

/// A completion that a student wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRecord {
    /// Steps that were done.
    pub step: u64,
    pub prompt: String,
    pub completion: String,
    /// What the data have in its place.
    pub reference: String,
}
