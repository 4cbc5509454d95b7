//! The options of a run, as they are declared.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Arg, Args, Command};

use super::groups::{Change, CompletionOptions, ModelOptions, OnPolicyOptions, Options, TeachingOptions};
use super::usage::flag;

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
pub(super) fn argument(name: &str, value: &str) -> String {
    flag(name) + "=" + value
}

/// The heading of options that say what a command does with a run.
pub const RUN: &str = "Run";

/// The options of a command that reads them from a file too.
#[derive(Args, Debug)]
pub struct FlagsAndFile {
    #[command(flatten)]
    pub options: Options,
    /// File of options, run.toml; flags override it
    #[arg(long, value_name = "FILE", help_heading = RUN)]
    pub config: Option<PathBuf>,
}
