//! The cause of an error that wraps others.

use std::error::Error;

/// Returns the text of the innermost error: of a library that does not open it names what is missing, where the outer ones
/// say that opening failed.
pub fn cause(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}
