//! The options that are given to a run: as flags, and in a file under the same names.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use super::given::Source;
use super::groups::{Change, CompletionOptions, ModelOptions, OnPolicyOptions, Options, TeachingOptions};
use super::usage::{UsageError, flag};

/// The texts of an option that is given, with their source.
#[derive(Debug)]
pub(super) struct Values {
    pub source: Source,
    pub values: Vec<OsString>,
}

/// The options that are given to a run, by name.
#[derive(Debug, Default)]
pub struct Flags(pub(super) BTreeMap<String, Values>);

impl Default for Options {
    /// Nothing is given.
    fn default() -> Self {
        Flags::default().options().expect("every option has a default or may be absent")
    }
}

/// Every option of a run, as clap has it.
pub(super) static OPTIONS: LazyLock<Command> = LazyLock::new(command_of::<Options>);

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

fn declares<G: Args>(name: &str) -> bool {
    command_of::<G>().get_arguments().any(|option| option.get_id() == name)
}

/// Returns true if an option says how the student completes prompts.
pub fn is_of_completions(name: &str) -> bool {
    declares::<CompletionOptions>(name)
}

/// Returns true if an option makes sense in a run with a teacher alone.
pub fn is_of_teacher(name: &str) -> bool {
    let has_model = declares::<ModelOptions>(name) && name != "model";
    has_model || declares::<TeachingOptions>(name) || declares::<OnPolicyOptions>(name)
}

/// A flag with its value, in one word: the value may begin with a dash.
pub(super) fn argument(name: &str, value: &OsStr) -> OsString {
    let mut argument = OsString::from(flag(name) + "=");
    argument.push(value);
    argument
}

impl Flags {
    /// These where they are given, and those of `file` elsewhere.
    #[must_use]
    pub fn over(mut self, mut file: Self) -> Self {
        file.0.append(&mut self.0);
        file
    }

    /// The values of all options.
    ///
    /// # Errors
    /// [`UsageError`] of a value that an option cannot have.
    pub fn options(self) -> Result<Options, UsageError> {
        let arguments = self.0.iter().flat_map(|(name, given)| given.values.iter().map(|v| argument(name, v)));
        let marked = command_of::<Options>().mut_args(|option| match self.0.get(option.get_id().as_str()) {
            Some(given) => option.add(given.source),
            None => option,
        });
        let parsed = marked.try_get_matches_from(arguments);
        parsed.and_then(|matches| Options::from_arg_matches(&matches)).map_err(|error| UsageError(reason(&error)))
    }
}

/// Returns clap's message, without its hints at a usage that nobody sees here.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let names = all().map(|option| option.get_id().as_str());
        let given = names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        let given = given.map(|name| {
            let values = matches.get_raw(name).into_iter().flatten().map(ToOwned::to_owned).collect();
            (name.to_owned(), Values { source: Source::CommandLine, values })
        });
        Ok(Self(given.collect()))
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
