//! `precast-aot compare-evidence`

mod launches;
mod missing;
mod sources;
mod verdict;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::evidence::{self, Gathered, Golden};
use precast_fatbins::{TrustedKey, signature_path};
use precast_system::{count, input, say};
use serde::Serialize;

use super::{Failure, Trusted, print_json};
use launches::Launched;
use sources::Sources;
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
    let compared = compare(&a, &b)?;
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

pub(super) fn read(path: &Path, keys: &[TrustedKey]) -> Result<Gathered, Failure> {
    let io = |error| Failure::Io { what: "read", path: path.to_owned(), error };
    let text = input::read_text(path, evidence::MOST_BYTES).map_err(io)?;
    if !keys.is_empty() {
        let beside = signature_path(path);
        let signature = input::read_text(&beside, input::SETTINGS_BYTES).ok();
        TrustedKey::check(keys, text.as_bytes(), signature.as_deref(), &beside)?;
    }
    Gathered::decode(&text).map_err(|error| Failure::Evidence { path: path.to_owned(), reason: error.to_string() })
}

fn compare(a: &Gathered, b: &Gathered) -> Result<Comparison, Failure> {
    let [seed_a, seed_b] = [a, b].map(Gathered::seed);
    if seed_a != seed_b {
        return Err(Failure::Incomparable(format!("their inputs differ: seeds {seed_a} and {seed_b}")));
    }
    let [of_a, of_b] = [a, b].map(launches::by_key);
    let both: Vec<&String> = of_a.keys().filter(|key| of_b.contains_key(*key)).collect();
    if both.is_empty() {
        return Err(Failure::Incomparable("no kernel was checked on both".to_owned()));
    }
    let (sources_a, sources_b) = (Sources::of(a), Sources::of(b));
    let (mut keys, mut other_sources) = (BTreeMap::new(), Vec::new());
    for key in &both {
        let [one, other] = comparable([&of_a[*key], &of_b[*key]], [&sources_a, &sources_b]);
        let is_comparable = !one.is_empty() && !other.is_empty();
        match is_comparable.then(|| launches::of_key(key, &one, &other)).flatten() {
            Some(verdict) => drop(keys.insert((*key).clone(), verdict)),
            None => other_sources.push((*key).clone()),
        }
    }
    let mut notes: Vec<String> = [a, b]
        .iter()
        .zip(["A", "B"])
        .flat_map(|(one, name)| one.note().iter().map(move |note| format!("{name}: {note}")))
        .collect();
    for (sources, name) in [(&sources_a, "A"), (&sources_b, "B")] {
        notes.push(format!(
            "{name}: {} of {} are of this program's sources",
            sources.current,
            count(sources.all, "kernel")
        ));
    }
    if keys.is_empty() {
        return Err(Failure::Incomparable(format!(
            "no kernel of both is of the same sources ({}): take evidence with this program",
            notes.join("; ")
        )));
    }
    Ok(Comparison {
        chips: [a, b].map(|one| format!("{} ({}, {} host)", one.chip().name, one.chip().arch, one.chip().host)),
        notes,
        keys,
        golden: golden(a.golden(), b.golden()),
        alone: [of_a.len() - both.len(), of_b.len() - both.len()],
        other_sources,
        missing: [missing::of("A", [a, b], [&of_a, &of_b]), missing::of("B", [b, a], [&of_b, &of_a])].concat(),
    })
}

/// Selects the launches of a key whose results must agree: shared kernels with the same sources, or, if the chips run
/// different variants, kernels of this program's sources.
fn comparable<'a, 'b>(launches: [&'b Vec<Launched<'a>>; 2], sources: [&Sources<'a>; 2]) -> [Vec<&'b Launched<'a>>; 2] {
    let has = |launches: &[Launched<'_>], kernel: &str| launches.iter().any(|launch| launch.kernel == kernel);
    [(0, 1), (1, 0)].map(|(own, other)| {
        let taken = |launch: &&Launched<'a>| {
            if has(launches[other], launch.kernel) {
                sources[own].is_one_with(sources[other], launch.kernel)
            } else {
                sources[own].is_current(launch.kernel)
            }
        };
        launches[own].iter().filter(taken).collect()
    })
}

fn golden(a: &[Golden], b: &[Golden]) -> BTreeMap<String, Verdict> {
    let pairs = a.iter().filter_map(|one| {
        let other = b.iter().find(|other| other.case == one.case && other.precision == one.precision)?;
        Some((format!("{}, {}", one.case, one.precision), losses(one, other)?))
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
    let allowed = 2.0 * a.gate.min(b.gate);
    Some(match distance <= allowed {
        true => Verdict::Within { distance, allowed },
        false => Verdict::Apart { reason: format!("losses differ by {distance:.1e}, at most {allowed:.1e}") },
    })
}
