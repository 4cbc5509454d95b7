//! Old spellings of commands, which are refused with the new ones.

use std::ffi::OsString;

use crate::options::UsageError;

/// A command, how a word of its arguments begins, and how the two are spelled now.
const RENAMED: [(&str, &str, &str); 7] = [
    ("bench", "--generate", "bench generate"),
    ("bench", "--on-policy", "bench on-policy"),
    ("bench", "--kernel", "bench kernels PREFIX"),
    ("bench", "--tune", "bench tune FILE"),
    ("bench", "-", "bench step"),
    ("eval", "--against", "eval compare --against"),
    ("plan", "--generate", "plan generate"),
];

/// Returns the new spelling of a command line that nobody takes, if it was one.
pub fn renamed(line: impl Iterator<Item = OsString>) -> Option<UsageError> {
    let words: Vec<String> = line.skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let (command, arguments) = words.split_first()?;
    // Behind the name of a subcommand its own usage says more.
    arguments.first().filter(|first| first.starts_with('-'))?;
    let flags = || arguments.iter().take_while(|word| *word != "--").map(|word| word.split('=').next().unwrap_or(word));
    flags().all(|word| !["-h", "--help", "-V", "--version"].contains(&word)).then_some(())?;
    let is_old = |flag: &str| flag == "-" || flags().any(|word| word == flag);
    let (_, flag, now) = RENAMED.iter().find(|(of, flag, _)| of == command && is_old(flag))?;
    let was = if *flag == "-" { command.clone() } else { format!("{command} {flag}") };
    Some(UsageError(format!("`precast {was}` is `precast {now}` now: `precast {command} --help` lists the commands")))
}
