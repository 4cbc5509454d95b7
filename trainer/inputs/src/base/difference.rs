//! Differences between what is asked for and what was.

/// A value that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} was {was}, is {is}")]
pub struct Difference {
    pub name: String,
    /// As it is recorded.
    pub was: String,
    /// As it is asked for now.
    pub is: String,
}
