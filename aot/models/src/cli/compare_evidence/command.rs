//! Prints the comparison.

use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::evidence::{self, Evidence};
use precast_fatbins::{TrustedKey, signature_path};
use precast_system::{count, input, say};

use super::comparison::{Comparison, compare};
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
    let compared = compare([&a, &b])?;
    let apart = compared.keys.values().chain(compared.golden.values());
    let apart = apart.filter(|verdict| matches!(verdict, Verdict::Apart { .. })).count();
    if arguments.json {
        print_json(&compared);
    } else {
        let Comparison { chips: [a, b], notes, keys, golden, alone, other_sources, missing } = &compared;
        say!("A: {a}\nB: {b}");
        notes.iter().for_each(|note| say!("note: {note}"));
        for (what, verdict) in keys.iter().chain(golden) {
            say!("{verdict:<40}  {what}", verdict = verdict.to_string());
        }
        other_sources.iter().for_each(|key| say!("{:<40}  {key}", "not compared: other sources"));
        missing.iter().for_each(|what| say!("{:<40}  {what}", "not compared: missing"));
        let norms = keys.values().filter(|verdict| matches!(verdict, Verdict::Norms { .. })).count();
        say!(
            "{} and {} compared, {apart} apart, {norms} by their norms alone; not compared: {} of other sources, {} in A alone, \
             {} in B alone, {} missing",
            count(keys.len(), "key"),
            count(golden.len(), "training run"),
            other_sources.len(),
            alone[0],
            alone[1],
            missing.len()
        );
    }
    match (apart, compared.missing.len()) {
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
