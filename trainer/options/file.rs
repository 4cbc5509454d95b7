//! run.toml: options under their names, with hyphens or underscores. What is in it becomes the default of the flag of
//! that name, and is read by the same parser, so that no option is described twice. (A crate that layers sources, such
//! as figment, would want each as a serde field besides clap's.)

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, Command, Error, FromArgMatches, Parser};
use itertools::Itertools;
use toml::{Spanned, Value};

use super::flags::{OPTIONS, all, argument};
use super::given::OptionSource;
use super::groups::Options;
use super::usage::{UsageError, flag};
use crate::base::impostors::read_text;

/// Options that a command line alone has: they say what to do with a run, or where.
pub(crate) const OF_COMMAND_LINE: &str =
    "arch config dry_run gpus overwrite print_config rendezvous resume separate_allocations verbose";

/// The options of a file: of each that is given, the texts of its values.
#[derive(Debug, Default)]
pub struct FileOptions(BTreeMap<&'static str, Vec<&'static str>>);

impl Default for Options {
    /// Nothing is given.
    fn default() -> Self {
        FileOptions::default().options().expect("every option has a default or may be absent")
    }
}

impl FileOptions {
    /// Reads a file of options.
    ///
    /// # Errors
    /// [`UsageError`] that names the line.
    pub fn read(path: &Path) -> Result<Self, UsageError> {
        let wrong = |reason: String| UsageError(format!("--config {}: {reason}", path.display()));
        let text = read_text(path).map_err(|error| wrong(format!("cannot read it: {error}")))?;
        Self::from_toml(&text).map_err(wrong)
    }

    /// # Errors
    /// Of a line that is no TOML, or no option and a value that it can have.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let lines: BTreeMap<Spanned<String>, Value> = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut given = BTreeMap::new();
        for (name, value) in lines.into_iter().sorted_by_key(|(name, _)| name.span().start) {
            let number = 1 + text[..name.span().start].matches('\n').count();
            let at_line = |reason| format!("line {number}: {reason}");
            let known = known(name.get_ref()).map_err(at_line)?;
            if given.insert(known, values(known, value).map_err(at_line)?).is_some() {
                return Err(at_line(format!("{known} is given twice")));
            }
        }
        // An empty list says nothing.
        given.retain(|_, values| !values.is_empty());
        Ok(Self(given))
    }

    /// Returns a command whose options have these as their defaults.
    pub(super) fn under(&self, command: Command) -> Command {
        command.mut_args(|option| match self.0.get(option.get_id().as_str()) {
            Some(values) => option.add(OptionSource::File).default_values(values),
            None => option,
        })
    }

    /// Parses the command line, which overrides these.
    ///
    /// # Errors
    /// Those of clap.
    pub fn parse<P: Parser>(&self) -> Result<P, Error> {
        let command = P::command().mut_subcommands(|command| self.under(command));
        P::from_arg_matches(&command.try_get_matches()?)
    }

    /// Returns the options of a run that gives no others.
    ///
    /// # Errors
    /// [`UsageError`] of a value that an option cannot have.
    pub fn options(&self) -> Result<Options, UsageError> {
        let parsed: Result<ArgMatches, Error> = self.under(OPTIONS.clone()).try_get_matches_from([""; 0]);
        parsed.and_then(|matches| Options::from_arg_matches(&matches)).map_err(|error| UsageError(error.to_string()))
    }
}

/// Returns the name of an option, as its declaration has it.
fn known(text: &str) -> Result<&'static str, String> {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| all().map(|option| option.get_id().as_str()).collect());
    let name = text.replace('-', "_");
    NAMES.iter().find(|known| **known == name).copied().ok_or_else(|| unknown(text))
}

/// Most bytes of a name that options are compared with.
const MOST_ALIKE: usize = 100;

/// The error for a name that no option has, with the one that is most like it, as clap finds it.
fn unknown(text: &str) -> String {
    let name = text.replace('-', "_");
    if OF_COMMAND_LINE.split(' ').any(|other| other == name) {
        return format!("{text} is an option of the command line only: leave it out here, and give {}", flag(&name));
    }
    // The time that the search takes is the square of the length.
    let asked = (text.len() <= MOST_ALIKE).then(|| OPTIONS.clone().try_get_matches_from([argument(text, "")]));
    let error = asked.and_then(Result::err);
    let remedy = match error.as_ref().and_then(|error| error.get(ContextKind::SuggestedArg)) {
        Some(ContextValue::String(flag)) => {
            format!("did you mean {}?", flag.trim_start_matches('-').replace('-', "_"))
        }
        _ => "`precast distill --help` lists them".to_owned(),
    };
    format!("no option is called {text}: {remedy}")
}

/// Returns the texts of the values of an option, which its parser takes. They stay for as long as the program runs, as
/// its flags do.
fn values(name: &str, value: Value) -> Result<Vec<&'static str>, String> {
    let values = if let Value::Array(values) = value { values } else { vec![value] };
    let texts = values.into_iter().map(|value| match value {
        Value::String(text) => Ok(&*text.leak()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Ok(&*value.to_string().leak()),
        other => Err(format!("expected text, a number, true or false, found {}", other.type_str())),
    });
    let texts = texts.collect::<Result<Vec<&str>, String>>()?;
    let taken = OPTIONS.clone().try_get_matches_from(texts.iter().map(|text| argument(name, text)));
    taken.map(|_| texts).map_err(|error| match std::error::Error::source(&error) {
        Some(why) => format!("not a value of {name}: {why}"),
        None => format!("{name} takes one value"),
    })
}
