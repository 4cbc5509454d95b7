//! Errors of options.

/// A command line or a file of options that asks for what cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Returns the flag of the first of some options that is asked for, which has the name of its variable.
macro_rules! first_asked {
    ($($option:ident),+ $(,)?) => {
        None$(.or_else(|| $crate::options::Asked::is_asked($option).then(||
            $crate::options::usage::flag(stringify!($option)))))+
    };
}
pub(crate) use first_asked;

/// The flag of an option, as messages name it.
pub(crate) fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// An option that a run cannot do without.
pub(crate) fn missing(name: &str) -> UsageError {
    UsageError(format!("{} is missing: give it as a flag or in --config run.toml", flag(name)))
}
