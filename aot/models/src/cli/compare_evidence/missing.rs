//! Lists the parts that a file of evidence lacks: two files that lack the same parts agree on nothing.

use std::collections::{BTreeMap, BTreeSet};

use precast_fatbins::evidence::{Gathered, Golden, PRECISIONS};
use precast_kernels::{Arch, KERNELS, KeyVariant};
use precast_system::count;

use super::launches::Launched;

/// Samples launched, by key and variant.
type Kernels = BTreeMap<String, BTreeSet<usize>>;

/// Returns the loaded kernels with the samples that each ran.
fn kernels(gathered: &Gathered, launched: &BTreeMap<String, Vec<Launched<'_>>>) -> Kernels {
    let loaded: Vec<&String> = match gathered {
        Gathered::Whole(evidence) => evidence.loads.iter().map(|load| &load.kernel).collect(),
        Gathered::Summary(summary) => summary.kernels.keys().collect(),
    };
    let mut kernels: Kernels = loaded.into_iter().map(|kernel| (kernel.clone(), BTreeSet::new())).collect();
    for launch in launched.values().flatten() {
        kernels.entry(launch.kernel.to_owned()).or_default().insert(launch.sample());
    }
    kernels
}

/// Finds a kernel that this program builds for a chip.
fn known(kernel: &str, arch: Arch) -> Option<KeyVariant> {
    let key = KERNELS.parse(kernel.rsplit_once('[')?.0).ok()?;
    key.built(arch).find(|pair| pair.to_string() == kernel)
}

/// Lists the gaps of the first file: samples of loaded kernels, kernels of the other file that this chip also runs, and
/// training runs.
pub(super) fn of(
    name: &str,
    files: [&Gathered; 2],
    launched: [&BTreeMap<String, Vec<Launched<'_>>>; 2],
) -> Vec<String> {
    let [own, other] = [0, 1].map(|at| kernels(files[at], launched[at]));
    let arch: Option<Arch> = files[0].chip().arch.parse().ok();
    let all: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
    let lacks = |kernel: &&String| {
        let pair = known(kernel, arch?)?;
        let samples = pair.key.kernel().samples();
        let admitted = (0..samples.len()).filter(|sample| pair.key.kernel().admits(pair.variant, &samples[*sample]));
        let there = own.get(*kernel);
        let (mut all, mut missing) = (0, 0);
        for sample in admitted {
            all += 1;
            missing += usize::from(!there.is_some_and(|there| there.contains(&sample)));
        }
        (missing > 0).then(|| format!("{name}: {missing} of {} of {kernel}", count(all, "sample")))
    };
    let kernels = all.iter().filter_map(lacks);
    let runs = runs(files).into_iter().filter_map(|(case, precision)| {
        let run = find(files[0].golden(), &case, &precision);
        let ran = run.is_some_and(|run| !run.losses.is_empty());
        (!ran).then(|| format!("{name}: the training run in {precision}"))
    });
    kernels.chain(runs).collect()
}

/// Returns the training runs of either file, and at least one per precision.
fn runs(files: [&Gathered; 2]) -> BTreeSet<(String, String)> {
    let of = |run: &Golden| (run.case.clone(), run.precision.clone());
    let mut runs: BTreeSet<(String, String)> = files.iter().flat_map(|file| file.golden()).map(of).collect();
    for precision in PRECISIONS {
        if !runs.iter().any(|(_, there)| there == precision) {
            runs.insert((String::new(), precision.to_owned()));
        }
    }
    runs
}

fn find<'a>(runs: &'a [Golden], case: &str, precision: &str) -> Option<&'a Golden> {
    runs.iter().find(|run| run.case == case && run.precision == precision)
}
