//! `precast-aot compare-evidence`

mod kernels;
mod launches;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::evidence::{self, Evidence, Golden, PRECISIONS};
use precast_fatbins::{TrustedKey, signature_path};
use precast_system::{count, input, say};
use serde::Serialize;

use super::failure::Failure;
use super::io::print_json;
use super::targets::Trusted;
use kernels::Kernel;
use verdict::Verdict;

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

/// Verdicts on two files.
#[derive(Serialize)]
struct Comparison {
    chips: [String; 2],
    notes: Vec<String>,
    keys: BTreeMap<String, Verdict>,
    golden: BTreeMap<String, Verdict>,
    /// Number of keys only in the first file and only in the second.
    alone: [usize; 2],
    /// Shared keys whose kernels have different or unknown sources.
    other_sources: Vec<String>,
    /// Expected results that either file lacks.
    missing: Vec<String>,
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

pub(super) fn read(path: &Path, keys: &[TrustedKey]) -> Result<Evidence, Failure> {
    let io = |error| Failure::Io { what: "read", path: path.to_owned(), error };
    let text = input::read_text(path, evidence::MOST_BYTES).map_err(io)?;
    if !keys.is_empty() {
        let beside = signature_path(path);
        let signature = input::read_text(&beside, input::SETTINGS_BYTES).ok();
        TrustedKey::check(keys, text.as_bytes(), signature.as_deref(), &beside)?;
    }
    Evidence::decode(&text).map_err(|error| Failure::Evidence { path: path.to_owned(), reason: error.to_string() })
}

fn compare(files: [&Evidence; 2]) -> Result<Comparison, Failure> {
    let [seed_a, seed_b] = files.map(|file| file.seed);
    if seed_a != seed_b {
        return Err(Failure::Incomparable(format!("their inputs differ: seeds {seed_a} and {seed_b}")));
    }
    let all = files.map(kernels::of);
    let launched = all.each_ref().map(|kernels| {
        let mut keys: BTreeMap<&str, Vec<&Kernel<'_>>> = BTreeMap::new();
        for kernel in kernels.values().filter(|kernel| !kernel.launches.is_empty()) {
            keys.entry(kernel.key()).or_default().push(kernel);
        }
        keys
    });
    let both: BTreeSet<&str> = launched[0].keys().filter(|key| launched[1].contains_key(*key)).copied().collect();
    if both.is_empty() {
        return Err(Failure::Incomparable("no kernel was checked on both".to_owned()));
    }
    let (mut keys, mut other_sources) = (BTreeMap::new(), Vec::new());
    for key in &both {
        let [one, other] = comparable(launched.each_ref().map(|kernels| &*kernels[key]));
        let is_comparable = !one.is_empty() && !other.is_empty();
        match is_comparable.then(|| launches::of_key(key, &one, &other)).flatten() {
            Some(verdict) => drop(keys.insert((*key).to_owned(), verdict)),
            None => other_sources.push((*key).to_owned()),
        }
    }
    let named = || files.into_iter().zip(["A", "B"]);
    let said = named().flat_map(|(file, name)| file.note.iter().map(move |note| format!("{name}: {note}")));
    let sources = all.iter().zip(["A", "B"]).map(|(kernels, name)| {
        let current = kernels.values().filter(|kernel| kernel.is_current).count();
        format!("{name}: {current} of {} are of this program's sources", count(kernels.len(), "kernel"))
    });
    let notes: Vec<String> = said.chain(sources).collect();
    if keys.is_empty() {
        return Err(Failure::Incomparable(format!(
            "no kernel of both is of the same sources ({}): take evidence with this program",
            notes.join("; ")
        )));
    }
    let missing = named().enumerate().flat_map(|(at, (file, name))| {
        let samples = kernels::missing(name, &file.chip.arch, &all[at], &all[1 - at]);
        samples.into_iter().chain(missing_runs(name, file, files))
    });
    Ok(Comparison {
        chips: files.map(|file| format!("{} ({}, {} host)", file.chip.name, file.chip.arch, file.chip.host)),
        notes,
        keys,
        golden: golden(files),
        alone: launched.each_ref().map(|kernels| kernels.len() - both.len()),
        other_sources,
        missing: missing.collect(),
    })
}

/// Selects the kernels of a key whose results must agree: shared ones with the same sources, or, if the chips run
/// different variants, those of this program's sources.
fn comparable<'k, 'a>(kernels: [&[&'k Kernel<'a>]; 2]) -> [Vec<&'k Kernel<'a>>; 2] {
    [(0, 1), (1, 0)].map(|(own, other)| {
        let same = |kernel: &Kernel<'_>| kernels[other].iter().find(|other| other.name == kernel.name);
        let is_taken = |kernel: &&&Kernel<'_>| same(kernel).map_or(kernel.is_current, |same| kernel.is_one_with(same));
        kernels[own].iter().filter(is_taken).copied().collect()
    })
}

fn find<'a>(file: &'a Evidence, case: &str, precision: &str) -> Option<&'a Golden> {
    file.golden.iter().find(|run| run.case == case && run.precision == precision)
}

/// Lists the training runs that a file lacks, of those of either and at least one per precision.
fn missing_runs(name: &str, file: &Evidence, files: [&Evidence; 2]) -> Vec<String> {
    let of = |run: &'_ Golden| (run.case.clone(), run.precision.clone());
    let mut runs: BTreeSet<(String, String)> = files.iter().flat_map(|file| &file.golden).map(of).collect();
    for precision in PRECISIONS {
        if !runs.iter().any(|(_, there)| there == precision) {
            runs.insert((String::new(), precision.to_owned()));
        }
    }
    let ran =
        |(case, precision): &(String, String)| find(file, case, precision).is_some_and(|run| !run.losses.is_empty());
    let missing = runs.into_iter().filter(|run| !ran(run));
    missing.map(|(_, precision)| format!("{name}: the training run in {precision}")).collect()
}

fn golden([a, b]: [&Evidence; 2]) -> BTreeMap<String, Verdict> {
    let pairs = a.golden.iter().filter_map(|one| {
        let verdict = losses(one, find(b, &one.case, &one.precision)?)?;
        Some((format!("{}, {}", one.case, one.precision), verdict))
    });
    pairs.collect()
}

/// Compares the losses of two training runs; none if either did not run.
fn losses(a: &Golden, b: &Golden) -> Option<Verdict> {
    if a.losses.is_empty() || b.losses.is_empty() {
        return None;
    }
    if let Some(fault) = a.fault.as_ref().or(b.fault.as_ref()) {
        return Some(Verdict::Apart { reason: fault.clone() });
    }
    if a.losses.len() != b.losses.len() {
        return Some(Verdict::Apart { reason: "they have different numbers of steps".to_owned() });
    }
    let bits = |losses: &[f64]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    if bits(&a.losses) == bits(&b.losses) {
        return Some(Verdict::Bits);
    }
    let distance = a.losses.iter().zip(&b.losses).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max);
    Some(Verdict::within("losses differ", distance, 2.0 * a.gate.min(b.gate)))
}
