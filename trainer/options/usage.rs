//! Errors of options.

/// A command line or a file of options that asks for what cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Returns the first of some options that is asked for.
pub(crate) fn first_asked<F>(options: impl IntoIterator<Item = (F, bool)>) -> Option<F> {
    options.into_iter().find(|(_, is_asked)| *is_asked).map(|(flag, _)| flag)
}

/// The flag of an option, as messages name it.
pub(crate) fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// An option that a run cannot do without.
pub(crate) fn missing(name: &str) -> UsageError {
    UsageError(format!("{} is missing: give it as a flag or in --config run.toml", flag(name)))
}
