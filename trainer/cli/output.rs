//! What a command writes.

use precast_system::files::Existing;
use precast_system::say;

/// Says what `--overwrite` does with what lies in `--out`.
pub(super) fn existing(overwrite: bool) -> Existing {
    if overwrite { Existing::Replace } else { Existing::Keep }
}

/// Prints JSON for programs, or text for people.
pub(super) fn print_as(json: bool, value: &impl serde::Serialize, text: impl std::fmt::Display) {
    if json { print_json(value) } else { say!("{text}") }
}

/// Prints JSON for programs.
pub(super) fn print_json(value: &impl serde::Serialize) {
    say!("{}", serde_json::to_string_pretty(value).expect("plain data serializes"));
}
