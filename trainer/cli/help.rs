//! Order of options in help: those that most people need first stand under no heading, before all others, and `-h` shows them alone.

use clap::Arg;

pub(super) type Names = &'static [&'static str];

pub(super) const DISTILL: Names =
    &["teacher", "student", "data", "out", "steps", "batch_size", "seq_len", "lr", "lora_rank", "resume"];
pub(super) const TRAIN: Names =
    &["model", "data", "out", "steps", "batch_size", "seq_len", "lr", "lora_rank", "resume", "config"];
pub(super) const PLAN: Names = &[
    "teacher",
    "student",
    "model",
    "batch_size",
    "seq_len",
    "precision",
    "lora_rank",
    "arch",
    "gpus",
    "memory",
    "json",
];
pub(super) const BENCH: Names =
    &["teacher", "student", "model", "batch_size", "seq_len", "steps", "sweep", "kernel", "out", "json"];
pub(super) const SMOKE: Names =
    &["teacher", "student", "model", "batch_size", "seq_len", "steps", "lr", "seed", "device"];
pub(super) const DOCTOR: Names = &["teacher", "student", "model", "bundle", "device", "json"];

/// Puts options of these names first, in this order. `--help` shows others below under their headings, and `-h` does not.
pub(super) fn first(names: Names) -> impl FnMut(Arg) -> Arg {
    |option| match names.iter().position(|name| option.get_id() == *name) {
        Some(at) => option.help_heading(None).display_order(at),
        None => option.hide_short_help(true),
    }
}

/// Puts an option of a command that has few under no heading.
pub(super) fn plain(option: Arg) -> Arg {
    option.help_heading(None)
}
