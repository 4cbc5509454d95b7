//! Prints the comparison.

use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::evidence::{self, Evidence};
use precast_fatbins::{TrustedKey, signature_path};
use precast_system::{count, input, say};

use super::comparison::compare;
use super::verdict::Verdict;
use crate::cli::failure::Failure;
use crate::cli::io::print_json;
use crate::cli::targets::Trusted;

#[derive(Args)]
pub struct Arguments {
    /// A file of `precast evidence`, or a summary of one
    a: PathBuf,
    /// File or summary of another chip
    b: PathBuf,
    #[command(flatten)]
    trusted: Trusted,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let keys = arguments.trusted.keys()?;
    let (a, b) = (read(&arguments.a, &keys)?, read(&arguments.b, &keys)?);
    let verdicts = compare([&a, &b])?;
    let apart = verdicts.values().filter(|verdict| matches!(verdict, Verdict::Apart { .. })).count();
    let missing = verdicts.values().filter(|verdict| **verdict == Verdict::Missing).count();
    if arguments.json {
        print_json(&verdicts);
    } else {
        for (side, Evidence { chip, note, .. }) in [("A", &a), ("B", &b)] {
            say!("{side}: {} ({}, {} host)", chip.name, chip.arch, chip.host);
            note.iter().for_each(|note| say!("note: {side}: {note}"));
        }
        verdicts.iter().for_each(|(what, verdict)| say!("{:<40}  {what}", verdict.to_string()));
        say!("{}: {apart} apart, {missing} missing", count(verdicts.len(), "result"));
    }
    match (apart, missing) {
        (0, 0) => Ok(()),
        (0, missing) => Err(Failure::Missing(missing)),
        (apart, _) => Err(Failure::Apart(apart)),
    }
}

pub fn read(path: &Path, keys: &[TrustedKey]) -> Result<Evidence, Failure> {
    let io = |error| Failure::Io { what: "read", path: path.to_owned(), error };
    let text = input::read_text(path, evidence::MOST_BYTES).map_err(io)?;
    if !keys.is_empty() {
        let beside = signature_path(path);
        let signature = input::read_text(&beside, input::SETTINGS_BYTES).ok();
        TrustedKey::check(keys, text.as_bytes(), signature.as_deref(), &beside)?;
    }
    Evidence::decode(&text).map_err(|error| Failure::Evidence { path: path.to_owned(), reason: error.to_string() })
}
