//! Compares the training runs of two chips.

use std::collections::{BTreeMap, BTreeSet};

use precast_fatbins::evidence::{Evidence, Golden, PRECISIONS};

use super::verdict::Verdict;

fn find<'a>(file: &'a Evidence, case: &str, precision: &str) -> Option<&'a Golden> {
    file.golden.iter().find(|run| run.case == case && run.precision == precision)
}

/// Lists the training runs that a file lacks, of those of either and at least one per precision.
pub(super) fn missing(name: &str, file: &Evidence, files: [&Evidence; 2]) -> Vec<String> {
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

/// Compares the training runs that both files have.
pub(super) fn compare([a, b]: [&Evidence; 2]) -> BTreeMap<String, Verdict> {
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
    let distance = a.losses.iter().zip(&b.losses).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max);
    Some(match a.fault.as_ref().or(b.fault.as_ref()) {
        Some(fault) => Verdict::apart(fault),
        None if a.losses.len() != b.losses.len() => Verdict::apart("they have different numbers of steps"),
        None if a.losses.iter().map(|loss| loss.to_bits()).eq(b.losses.iter().map(|loss| loss.to_bits())) => {
            Verdict::Bits
        }
        None => Verdict::within("losses differ", distance, 2.0 * a.gate.min(b.gate)),
    })
}
