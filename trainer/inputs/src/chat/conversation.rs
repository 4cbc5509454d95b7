//! A conversation as a template renders it.

use std::fmt::Display;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A conversation as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    pub text: String,
    /// Bytes of it that the assistant has said, in order.
    pub spans: Vec<Range<usize>>,
}

/// The error for a row that a template refuses, or fails at.
pub(super) fn refused(reason: impl Display) -> String {
    format!("the chat template refuses the row: {reason}")
}
