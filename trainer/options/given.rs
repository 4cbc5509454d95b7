//! The value of an option, with its source.

use std::ffi::OsStr;

use clap::builder::{ArgExt, TypedValueParser};
use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, Command};

/// Source of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionSource {
    /// Declared beside the option.
    Default,
    /// The file that `--config` names.
    File,
    CommandLine,
    /// What the code needs, whatever is asked for.
    Code,
}

impl ArgExt for OptionSource {}

/// The value of an option, with its source.
#[derive(Clone, Copy, Debug)]
pub struct Given<T> {
    pub value: T,
    pub source: OptionSource,
}

/// The value of an option that may be asked for.
pub trait Asked {
    /// Returns true if a command line or a file asks for it.
    fn is_asked(&self) -> bool;
}

impl<T> Asked for Given<T> {
    fn is_asked(&self) -> bool {
        matches!(self.source, OptionSource::File | OptionSource::CommandLine)
    }
}

impl<T> Asked for Option<T> {
    fn is_asked(&self) -> bool {
        self.is_some()
    }
}

impl<T> Asked for Vec<T> {
    fn is_asked(&self) -> bool {
        !self.is_empty()
    }
}

/// A flag that is off where nothing is said.
impl Asked for bool {
    fn is_asked(&self) -> bool {
        *self
    }
}

impl<T> From<T> for Given<T> {
    /// Takes the value that the code needs.
    fn from(value: T) -> Self {
        Self { value, source: OptionSource::Code }
    }
}

/// A parser of values, each with its source: of a default, that which its option is marked with.
#[derive(Clone)]
pub(crate) struct Sourced<P>(pub P);

impl<P: TypedValueParser> TypedValueParser for Sourced<P> {
    type Value = Given<P::Value>;

    fn parse_ref(&self, command: &Command, option: Option<&Arg>, text: &OsStr) -> Result<Self::Value, Error> {
        self.parse_ref_(command, option, text, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        command: &Command,
        option: Option<&Arg>,
        text: &OsStr,
        source: ValueSource,
    ) -> Result<Self::Value, Error> {
        let value = self.0.parse_ref(command, option, text)?;
        let of_default = || option.and_then(|option| option.get().copied()).unwrap_or(OptionSource::Default);
        Ok(Given {
            value,
            source: if source == ValueSource::DefaultValue { of_default() } else { OptionSource::CommandLine },
        })
    }
}
