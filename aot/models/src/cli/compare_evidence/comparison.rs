//! Compares two files of evidence.

use std::collections::{BTreeMap, BTreeSet};

use precast_fatbins::evidence::{Evidence, PRECISIONS};
use precast_system::count;

use super::kernels::{key, missing, of_key};
use super::verdict::Verdict;
use crate::cli::failure::Failure;

/// Returns verdicts by key, by training run, and by result that a file lacks.
pub(super) fn compare(files: [&Evidence; 2]) -> Result<BTreeMap<String, Verdict>, Failure> {
    let [a, b] = files;
    if a.seed != b.seed {
        return Err(Failure::Incomparable(format!("their inputs differ: seeds {} and {}", a.seed, b.seed)));
    }
    let names: BTreeSet<&str> = a.kernels.keys().chain(b.kernels.keys()).map(String::as_str).collect();
    let keys: BTreeSet<&str> = names.iter().map(|name| key(name)).collect();
    let mut verdicts: BTreeMap<String, Verdict> =
        keys.into_iter().map(|key| (key.to_owned(), of_kernels(key, files))).collect();
    if verdicts.values().all(|verdict| *verdict == Verdict::OtherSources) {
        let reason = "no kernel of both is of the same sources: take evidence with this program";
        return Err(Failure::Incomparable(reason.to_owned()));
    }
    for (file, side) in [(a, "A"), (b, "B")] {
        let samples = names.iter().map(|name| (missing(file, name), name)).filter(|(missing, _)| *missing > 0);
        let samples = samples.map(|(missing, name)| format!("{side}: {} of {name}", count(missing, "sample")));
        let runs = PRECISIONS.into_iter().filter(|precision| file.run(precision).is_none());
        let lacks = samples.chain(runs.map(|precision| format!("{side}: the training run in {precision}")));
        verdicts.extend(lacks.map(|what| (what, Verdict::Missing)));
    }
    let runs = PRECISIONS.into_iter().filter_map(|precision| Some((a.run(precision)?, b.run(precision)?)));
    verdicts.extend(runs.map(|(a, b)| (format!("{}, {}", a.case, a.precision), Verdict::of_runs(a, b))));
    Ok(verdicts)
}

/// Compares the launches of a key: those of variants that both have, else all of the same sources.
fn of_kernels(key: &str, files: [&Evidence; 2]) -> Verdict {
    let [one, other] = files.map(|file| of_key(file, key));
    let faults = one.iter().chain(&other).flat_map(|kernel| &kernel.kernel.faults);
    if let Some(fault) = faults.into_iter().next() {
        return Verdict::apart(fault);
    }
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    let mut pairs: Vec<_> = pairs.filter(|(a, b)| a.source == b.source).collect();
    if pairs.iter().any(|(a, b)| a.name == b.name) {
        pairs.retain(|(a, b)| a.name == b.name);
    }
    let verdicts = pairs.into_iter().flat_map(|(a, b)| {
        let both = a.kernel.launches.iter().flat_map(|one| b.kernel.launches.iter().map(move |other| (one, other)));
        let both = both.filter(|(one, other)| one.0 == other.0);
        both.map(|(one, other)| Verdict::of_launches(key, one, other))
    });
    let worst = verdicts.reduce(|one, other| if other > one { other } else { one });
    worst.unwrap_or(Verdict::OtherSources)
}
