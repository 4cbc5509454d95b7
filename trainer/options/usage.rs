/// A command line or a file of options that asks for what cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
