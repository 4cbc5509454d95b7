//! Options that are given, as opposed to those that have their defaults.

use std::collections::BTreeMap;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

/// The place where an option is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// On the command line.
    Flag,
    /// In the file that `--config` names.
    File,
}

/// Options, and the names of those that are given on the command line.
#[derive(Clone, Debug)]
pub struct Given<G> {
    pub options: G,
    pub given: BTreeMap<String, Source>,
}

impl<G: Args> Args for Given<G> {
    fn augment_args(command: Command) -> Command {
        G::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        G::augment_args_for_update(command)
    }
}

impl<G: FromArgMatches> FromArgMatches for Given<G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let names = matches.ids().map(clap::Id::as_str);
        let given = names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        let given = given.map(|name| (name.to_owned(), Source::Flag)).collect();
        Ok(Self { options: G::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
