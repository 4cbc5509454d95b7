//! Compares two files of evidence.

use std::collections::{BTreeMap, BTreeSet};

use precast_fatbins::evidence::Evidence;
use precast_system::count;
use serde::Serialize;

use super::kernels::{self, Kernel};
use super::verdict::Verdict;
use super::{golden, launches};
use crate::cli::failure::Failure;

/// Verdicts on two files.
#[derive(Serialize)]
pub(super) struct Comparison {
    pub chips: [String; 2],
    pub notes: Vec<String>,
    pub keys: BTreeMap<String, Verdict>,
    pub golden: BTreeMap<String, Verdict>,
    /// Number of keys only in the first file and only in the second.
    pub alone: [usize; 2],
    /// Shared keys whose kernels have different or unknown sources.
    pub other_sources: Vec<String>,
    /// Expected results that either file lacks.
    pub missing: Vec<String>,
}

pub(super) fn compare(files: [&Evidence; 2]) -> Result<Comparison, Failure> {
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
        samples.into_iter().chain(golden::missing(name, file, files))
    });
    Ok(Comparison {
        chips: files.map(|file| format!("{} ({}, {} host)", file.chip.name, file.chip.arch, file.chip.host)),
        notes,
        keys,
        golden: golden::compare(files),
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
