//! The options that are given to a run: as flags, and in a file under the same names.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use super::given::OptionSource;
use super::groups::{Change, OnPolicyOptions, Options, TeachingOptions};
use super::usage::{UsageError, flag};

/// An option that is given, as text.
#[derive(Debug)]
pub(super) struct Values {
    pub source: OptionSource,
    pub values: Vec<OsString>,
}

/// The options that are given to a run, or to a command that has a group of them, by name.
#[derive(Debug, Default)]
pub struct Flags<G = Options> {
    pub(super) given: BTreeMap<String, Values>,
    pub(super) group: PhantomData<G>,
}

impl Default for Options {
    /// Nothing is given.
    fn default() -> Self {
        Flags::default().options().expect("every option has a default or may be absent")
    }
}

/// Every option of a run, as clap has it.
pub(super) static OPTIONS: LazyLock<Command> = LazyLock::new(command_of::<Options>);
static TEACHING: LazyLock<Command> = LazyLock::new(command_of::<TeachingOptions>);
static ON_POLICY: LazyLock<Command> = LazyLock::new(command_of::<OnPolicyOptions>);

fn command_of<A: Args>() -> Command {
    A::augment_args(Command::new("options").no_binary_name(true))
}

/// Every option of a run.
pub fn all() -> impl Iterator<Item = &'static Arg> {
    OPTIONS.get_arguments()
}

/// Returns who may give an option another value.
///
/// # Panics
/// If no option has this name.
pub fn change(name: &str) -> Change {
    let option = all().find(|option| option.get_id() == name);
    option.unwrap_or_else(|| panic!("no option is called {name}")).get().copied().unwrap_or_default()
}

/// True if an option is of a run whose student writes, besides the one that asks for that.
pub fn is_of_rollouts(name: &str) -> bool {
    name != "on_policy" && ON_POLICY.get_arguments().any(|option| option.get_id() == name)
}

/// True if an option is of a run with a teacher alone.
pub fn is_of_teacher(name: &str) -> bool {
    let of = |group: &Command| group.get_arguments().any(|option| option.get_id() == name);
    ["teacher", "teacher_cache", "student"].contains(&name) || of(&TEACHING) || of(&ON_POLICY)
}

/// A flag with its value, in one word: the value may begin with a dash.
pub(super) fn argument(name: &str, value: &OsStr) -> OsString {
    let mut argument = OsString::from(flag(name) + "=");
    argument.push(value);
    argument
}

impl<G: Args> Flags<G> {
    /// True if an option is given.
    pub fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The values of the options of the group.
    ///
    /// # Errors
    /// [`UsageError`] of a value that an option cannot have.
    pub fn values(&self) -> Result<G, UsageError> {
        let arguments = self.given.iter().flat_map(|(name, given)| given.values.iter().map(|v| argument(name, v)));
        let parsed = command_of::<G>().try_get_matches_from(arguments);
        parsed.and_then(|matches| G::from_arg_matches(&matches)).map_err(|error| UsageError(what(&error)))
    }

    /// The names of those that are given, and where.
    pub(super) fn sources(&self) -> BTreeMap<String, OptionSource> {
        self.given.iter().map(|(name, given)| (name.clone(), given.source)).collect()
    }
}

impl Flags {
    /// These where they are given, and those of `file` elsewhere.
    #[must_use]
    pub fn over(mut self, mut file: Self) -> Self {
        file.given.append(&mut self.given);
        file
    }

    /// The values of all options.
    ///
    /// # Errors
    /// [`UsageError`] of a value that an option cannot have.
    pub fn options(self) -> Result<Options, UsageError> {
        Ok(Options { given: self.sources(), ..self.values()? })
    }
}

/// Returns clap's message, without its hints at a usage that nobody sees here.
fn what(error: &Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

impl<G: Args> Args for Flags<G> {
    fn augment_args(command: Command) -> Command {
        G::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        G::augment_args_for_update(command)
    }
}

impl<G: Args> FromArgMatches for Flags<G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let options = command_of::<G>();
        let names = options.get_arguments().map(|option| option.get_id().as_str());
        let given = names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        let given = given.map(|name| {
            let values = matches.get_raw(name).into_iter().flatten().map(ToOwned::to_owned).collect();
            (name.to_owned(), Values { source: OptionSource::Flag, values })
        });
        Ok(Self { given: given.collect(), group: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The heading of options that say what a command does with a run.
pub const RUN: &str = "Run";

/// The options of a command that reads them from a file too.
#[derive(Args, Debug)]
pub struct FlagsAndFile {
    #[command(flatten)]
    flags: Flags,
    /// File of options, run.toml; flags override it
    #[arg(long, value_name = "FILE", help_heading = RUN)]
    pub config: Option<PathBuf>,
}

impl FlagsAndFile {
    /// The values of all options.
    ///
    /// # Errors
    /// [`UsageError`] of the file, or for a value that an option cannot have.
    pub fn options(self) -> Result<Options, UsageError> {
        let file = self.config.as_deref().map(Flags::read).transpose()?.unwrap_or_default();
        self.flags.over(file).options()
    }
}
