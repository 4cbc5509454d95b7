//! Metadata of a file: a JSON object.

use std::fmt::Display;

use serde_json::{Map, Value};

use crate::checkpoint::fault::Fault;

/// The file's metadata.
pub(super) struct Metadata(pub(super) Map<String, Value>);

impl Metadata {
    /// Reads a JSON object.
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let wrong = |error| Fault::damaged(format_args!("metadata at byte 64 is not a JSON object ({error})"));
        serde_json::from_slice(bytes).map(Self).map_err(wrong)
    }

    /// The first of these keys that is there and not null.
    pub fn given(&self, keys: &[&'static str]) -> Option<(&'static str, &Value)> {
        keys.iter().find_map(|key| Some((*key, self.0.get(*key).filter(|value| !value.is_null())?)))
    }

    pub fn get<'a, T>(
        &'a self,
        keys: &[&'static str],
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some((key, value)) = self.given(keys) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| refuse(key, value, expected))
    }

    /// An integer that is not negative, under the first of these keys.
    pub fn integer(&self, keys: &[&'static str]) -> Result<Option<u64>, Fault> {
        self.get(keys, "expected an integer from 0 to 2^64 - 1", Value::as_u64)
    }

    pub fn required(&self, keys: &[&'static str]) -> Result<u64, Fault> {
        self.integer(keys)?.ok_or_else(|| missing(keys[0], "a part of the model's shape"))
    }

    pub fn decimal(&self, key: &'static str, otherwise: f64) -> Result<f64, Fault> {
        Ok(self.get(&[key], "expected a number", Value::as_f64)?.unwrap_or(otherwise))
    }

    pub fn string(&self, keys: &[&'static str]) -> Result<Option<&str>, Fault> {
        self.get(keys, "expected a string", Value::as_str)
    }

    /// A list of strings, under a key.
    pub fn strings(&self, key: &'static str) -> Result<Option<Vec<&str>>, Fault> {
        self.get(&[key], "expected a list of strings", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }
}

/// The error for a key that is needed and not there: what it says.
pub(super) fn missing(key: &str, what: impl Display) -> Fault {
    Fault::Wrong(format!("no metadata key {key}: {what}. Convert the model again"))
}

/// The error for a value that cannot be followed; of a long one as much as fits a line.
pub(super) fn refuse(key: &str, found: &Value, expected: impl Display) -> Fault {
    let mut found = found.to_string();
    if found.chars().count() > 60 {
        found = found.chars().take(57).collect::<String>() + "...";
    }
    Fault::Wrong(format!("metadata key {key} is {found}: {expected}"))
}
