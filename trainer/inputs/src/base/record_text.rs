//! Values as the text that people read of them in records.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// Writes a path as people read it: one that is not UTF-8 has no other text.
///
/// # Errors
/// The serializer's.
pub fn path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// Writes paths as people read them.
///
/// # Errors
/// The serializer's.
pub fn paths<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.display().to_string()))
}

/// Writes a path as people read it, or nothing.
///
/// # Errors
/// The serializer's.
pub fn path_or_none<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(to)
}

/// Writes a value as it is displayed.
///
/// # Errors
/// The serializer's.
pub fn display<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Writes a value as it is displayed, or nothing.
///
/// # Errors
/// The serializer's.
pub fn display_or_none<S: Serializer>(value: &Option<impl Display>, to: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

/// A value as JSON can hold it: none where it is not finite.
pub fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
