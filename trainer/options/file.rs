//! run.toml: options under their names, with hyphens or underscores. What is in it is read as flags are, by the same parsers, so
//! that no option is described twice. (A crate that layers sources, such as figment, would want each as a serde field besides
//! clap's.)

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::flags::{Flags, OPTIONS, Values, argument};
use super::given::Source;
use super::usage::{UsageError, flag};
use crate::base::impostors::read_text;

/// Options that a command line alone has: they say what to do with a run, or where.
pub(crate) const OF_COMMAND_LINE: [&str; 10] = [
    "arch",
    "config",
    "dry_run",
    "gpus",
    "overwrite",
    "print_config",
    "rendezvous",
    "resume",
    "separate_allocations",
    "verbose",
];

static NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| OPTIONS.get_arguments().map(|option| option.get_id().as_str()).collect());

impl Flags {
    /// Reads a file of options.
    ///
    /// # Errors
    /// [`UsageError`] that names the line.
    pub fn read(path: &Path) -> Result<Self, UsageError> {
        let unreadable = |error| UsageError(format!("--config {}: cannot read it: {error}", path.display()));
        let text = read_text(path).map_err(unreadable)?;
        Self::from_toml(&text).map_err(|error| UsageError(format!("--config {}: {error}", path.display())))
    }

    /// # Errors
    /// Of a line that is no TOML, or no option and a value that it can have.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        Ok(Self(toml::from_str::<File>(text)?.0))
    }
}

struct File(BTreeMap<String, Values>);

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Lines;

        impl<'de> Visitor<'de> for Lines {
            type Value = File;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("options of a run")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
                let mut given = BTreeMap::new();
                while let Some(name) = map.next_key_seed(NewName(&given))? {
                    let values = map.next_value_seed(ValuesOf(name))?;
                    given.insert(name.to_owned(), Values { source: Source::File, values });
                }
                // An empty list says nothing.
                given.retain(|_, given| !given.values.is_empty());
                Ok(File(given))
            }
        }
        from.deserialize_map(Lines)
    }
}

/// The name of an option that is not given yet.
struct NewName<'g>(&'g BTreeMap<String, Values>);

impl<'de> DeserializeSeed<'de> for NewName<'_> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let text = String::deserialize(from)?;
        let name = text.replace('-', "_");
        match NAMES.iter().find(|known| **known == name) {
            Some(known) if self.0.contains_key(*known) => Err(D::Error::custom(format!("{known} is given twice"))),
            Some(known) => Ok(known),
            None => Err(D::Error::custom(unknown(&text))),
        }
    }
}

/// The error for a name that no option has, with the one that is most like it, as clap finds it.
fn unknown(text: &str) -> String {
    let name = text.replace('-', "_");
    if OF_COMMAND_LINE.contains(&&*name) {
        return format!("{text} is an option of the command line only: leave it out here, and give {}", flag(&name));
    }
    let asked = OPTIONS.clone().try_get_matches_from([argument(text, OsStr::new(""))]);
    let remedy = match asked.as_ref().err().and_then(|error| error.get(ContextKind::SuggestedArg)) {
        Some(ContextValue::String(flag)) => {
            format!("did you mean {}?", flag.trim_start_matches('-').replace('-', "_"))
        }
        _ => "`precast distill --help` lists them".to_owned(),
    };
    format!("no option is called {text}: {remedy}")
}

/// The values of an option of this name.
struct ValuesOf(&'static str);

impl<'de> DeserializeSeed<'de> for ValuesOf {
    type Value = Vec<std::ffi::OsString>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let values = match toml::Value::deserialize(from)? {
            toml::Value::Array(values) => values,
            value => vec![value],
        };
        let values = values.iter().map(|value| match value {
            toml::Value::String(text) => Ok(text.clone()),
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => Ok(value.to_string()),
            other => {
                Err(D::Error::custom(format!("expected text, a number, true or false, found {}", other.type_str())))
            }
        });
        let values = values.map(|text| text.map(Into::into)).collect::<Result<Self::Value, D::Error>>()?;
        let arguments = values.iter().map(|value| argument(self.0, value));
        match OPTIONS.clone().try_get_matches_from(arguments) {
            Ok(_) => Ok(values),
            Err(error) => Err(D::Error::custom(match std::error::Error::source(&error) {
                Some(why) => format!("not a value of {}: {why}", self.0),
                None => format!("{} takes one value", self.0),
            })),
        }
    }
}
