//! The options that are given to a command: as flags, and in a file under the same names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use super::UsageError;
use super::asked::{Options, Source, Teaching};

/// What a command makes of the options of a run.
pub trait Takes: Send + Sync + 'static {
    /// The names of those that it takes; all of them where there is no list.
    const OPTIONS: Option<&'static [&'static str]> = None;

    /// An option as the command has it: hidden, required, or with a default or help of its own.
    fn adapt(option: Arg) -> Arg {
        option
    }
}

/// All options as they are.
#[derive(Debug)]
pub struct All;

impl Takes for All {}

/// An option that is given, as text.
#[derive(Debug)]
pub(super) struct Given {
    pub source: Source,
    pub values: Vec<OsString>,
}

/// The options that are given to a command that takes `T`'s, by name.
#[derive(Debug)]
pub struct Flags<T> {
    pub(super) given: BTreeMap<String, Given>,
    takes: PhantomData<T>,
}

impl<T> Default for Flags<T> {
    fn default() -> Self {
        Self { given: BTreeMap::new(), takes: PhantomData }
    }
}

impl Default for Options {
    /// Nothing is given.
    fn default() -> Self {
        Flags::<All>::default().options().expect("every option has a default or may be absent")
    }
}

/// Every option of a run, as clap has it.
pub(super) static OPTIONS: LazyLock<Command> = LazyLock::new(command_of::<Options>);
static TEACHING: LazyLock<Command> = LazyLock::new(command_of::<Teaching>);

fn command_of<A: Args>() -> Command {
    A::augment_args(Command::new("options").no_binary_name(true))
}

fn has(command: &Command, name: &str) -> bool {
    command.get_arguments().any(|option| option.get_id() == name)
}

/// The flag of an option, as messages name it.
pub fn flag(name: &str) -> String {
    let option = OPTIONS.get_arguments().find(|option| option.get_id() == name);
    format!("--{}", option.and_then(Arg::get_long).expect("every name is of an option"))
}

/// Whether an option is of a run with a teacher alone.
pub fn is_of_teacher(name: &str) -> bool {
    ["teacher", "student"].contains(&name) || has(&TEACHING, name)
}

/// A flag with its value, in one word: the value may begin with a dash.
pub(super) fn argument(name: &str, value: &std::ffi::OsStr) -> OsString {
    let mut argument = OsString::from(flag(name) + "=");
    argument.push(value);
    argument
}

impl<T: Takes> Flags<T> {
    fn takes(option: &Arg) -> bool {
        T::OPTIONS.is_none_or(|names| names.contains(&option.get_id().as_str()))
    }

    /// These where they are given, and those of `file` elsewhere.
    #[must_use]
    pub fn over(mut self, mut file: Self) -> Self {
        file.given.append(&mut self.given);
        file
    }

    /// The values of all options.
    ///
    /// # Errors
    /// [`UsageError`] where a command cannot do with what is given.
    pub fn options(self) -> Result<Options, UsageError> {
        let arguments = self.given.iter().flat_map(|(name, given)| given.values.iter().map(|v| argument(name, v)));
        let adapt = |option| if Self::takes(&option) { T::adapt(option) } else { option };
        let parsed = OPTIONS.clone().mut_args(adapt).try_get_matches_from(arguments);
        let options = parsed.and_then(|matches| Options::from_arg_matches(&matches));
        let mut options = options.map_err(|error| UsageError(what(&error)))?;
        options.given = self.given.into_iter().map(|(name, given)| (name, given.source)).collect();
        Ok(options)
    }
}

/// What clap finds wrong, without its hints at a usage that nobody sees here.
fn what(error: &Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

impl<T: Takes> Args for Flags<T> {
    fn augment_args(command: Command) -> Command {
        for name in T::OPTIONS.into_iter().flatten() {
            assert!(has(&OPTIONS, name), "no option of a run is called {name}");
        }
        let options = OPTIONS.get_arguments().filter(|option| Self::takes(option)).cloned();
        // The order is the command's: its own options come after these.
        command.args(options.map(|option| T::adapt(option).display_order(None)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Takes> FromArgMatches for Flags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let options = OPTIONS.get_arguments().filter(|option| Self::takes(option));
        let names = options.map(|option| option.get_id().as_str());
        let given = names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        self.given.extend(given.map(|name| {
            let values = matches.get_raw(name).into_iter().flatten().map(ToOwned::to_owned).collect();
            (name.to_owned(), Given { source: Source::Flag, values })
        }));
        Ok(())
    }
}

/// The options of a command that reads them from a file too.
#[derive(Args, Debug)]
pub struct FlagsAndFile<T: Takes> {
    #[command(flatten)]
    flags: Flags<T>,
    /// A run.toml with any of these options under their names; flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl<T: Takes> FlagsAndFile<T> {
    /// The values of all options.
    ///
    /// # Errors
    /// [`UsageError`] of the file, or where a command cannot do with what is given.
    pub fn options(self) -> Result<Options, UsageError> {
        let file = self.config.as_deref().map(Flags::read).transpose()?.unwrap_or_default();
        self.flags.over(file).options()
    }
}
