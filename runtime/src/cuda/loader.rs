//! Loads libraries by name.

/// Returns the text of the dynamic loader's error.
pub(super) fn why(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
