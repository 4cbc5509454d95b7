//! A command that is also another one, by the word behind its name.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

/// The arguments of a command, or of the one that a word behind its name makes of it.
pub enum Either<A, S> {
    Itself(A),
    Sub(S),
}

impl<A: Args, S: Subcommand> Args for Either<A, S> {
    fn augment_args(command: Command) -> Command {
        let command = S::augment_subcommands(A::augment_args(command));
        command.args_conflicts_with_subcommands(true).subcommand_negates_reqs(true).disable_help_subcommand(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<A: Args, S: Subcommand> FromArgMatches for Either<A, S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        match matches.subcommand_name() {
            Some(_) => S::from_arg_matches(matches).map(Self::Sub),
            None => A::from_arg_matches(matches).map(Self::Itself),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
