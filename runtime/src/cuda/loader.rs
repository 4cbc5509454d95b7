//! Libraries that are loaded by name.

/// What the dynamic loader says.
pub(super) fn why(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
