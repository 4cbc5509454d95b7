//! A row's bits depend on nothing but the row: of every forward operation, by every variant, and by host references.

use std::collections::BTreeSet;

use precast_kernels::{Arch, Geometry, KERNELS, Key, KeyVariant, check::Case, host::Buffer, rows::RowPair};
use precast_simt::{Program, execute};
use rayon::prelude::*;

use crate::SIMT;

/// Elements of a launch that is executed: enough for rows of whole vectors and of others.
const MOST: u64 = 40_000;

/// The launches of a key: of its parameters that are small enough, those that most variants admit, and of these the
/// largest.
fn pair(key: &Key) -> Option<RowPair> {
    let pairs = key.kernel().samples().into_iter().filter_map(|params| RowPair::new(key, &params, 1));
    let elems = |pair: &RowPair| pair.many.operands.iter().map(|operand| operand.elems).sum::<u64>();
    let (small, large): (Vec<_>, Vec<_>) = pairs.partition(|pair| elems(pair) <= MOST);
    let admitting = |pair: &RowPair| variants(key).iter().filter(|(_, built)| admits(built, pair)).count();
    let most = small.into_iter().max_by_key(|pair| (admitting(pair), elems(pair)));
    most.or_else(|| large.into_iter().min_by_key(elems))
}

fn admits(built: &KeyVariant, pair: &RowPair) -> bool {
    [&pair.few, &pair.many].iter().all(|case| built.key.kernel().admits(built.variant, &case.params))
}

/// Launches a variant, which must break no rule; returns the memory afterwards.
pub fn launched(program: &Program, pair: &KeyVariant, case: &Case) -> Vec<Buffer> {
    launched_on(program, pair, case, &pair.key.kernel().geometry(pair.variant, &case.params))
}

/// [`launched`] by a grid of one's own.
pub fn launched_on(program: &Program, pair: &KeyVariant, case: &Case, geometry: &Geometry) -> Vec<Buffer> {
    let (maps, mut memory) = (pair.key.kernel().tensor_maps(pair.variant, &case.params), case.before.clone());
    let done = execute(program, geometry, &case.params, &case.operands, &maps, &mut memory, 1);
    done.unwrap_or_else(|report| panic!("{pair}: {report}"));
    memory
}

/// The variants of a key that the rows of a bundle have, each once: a row compiles its sources as any other does.
pub fn variants(key: &Key) -> Vec<(Arch, KeyVariant)> {
    let mut seen = Vec::new();
    for (arch, pair) in Arch::GPUS.into_iter().flat_map(|arch| key.built(arch).map(move |it| (arch, it))) {
        assert!(!pair.source().mentions("__CUDA_ARCH__"), "{pair}");
        if !seen.iter().any(|(_, other): &(Arch, KeyVariant)| other.variant == pair.variant) {
            seen.push((arch, pair));
        }
    }
    seen
}

/// The forward examples, one of those of an operation and a dtype that are built alike, with a window and without.
fn keys() -> Vec<(Key, RowPair)> {
    let mut seen = BTreeSet::new();
    let keys = KERNELS.examples().into_iter().filter_map(|key| pair(&key).map(|pair| (key, pair)));
    let mut is_new = |(key, _): &(Key, RowPair)| {
        let built: Vec<String> = variants(key).iter().map(|(arch, pair)| format!("{arch} {}", pair.variant)).collect();
        let dtype = key.text().rsplit(',').next().map(str::to_owned);
        seen.insert((key.op(), key.text().contains("window="), dtype, built))
    };
    keys.filter(|pair| is_new(pair)).collect()
}

#[test]
fn a_row_depends_on_no_other() {
    let keys = keys();
    let ops: BTreeSet<&str> = keys.iter().map(|(key, _)| key.op()).collect();
    assert!(ops.len() == 23, "{ops:?}");
    let differing = |(key, rows): &(Key, RowPair)| {
        let mut found: Vec<String> = Vec::new();
        let on_sim = rows.differs(&rows.few.reference(), &rows.many.reference());
        found.extend(on_sim.map(|operand| format!("{key} by its host reference: {operand}")));
        for (arch, pair) in variants(key) {
            if admits(&pair, rows) {
                let program = SIMT.compile(&pair.source(), &pair.defines(arch), arch).unwrap();
                let [few, many] = [&rows.few, &rows.many].map(|case| launched(&program, &pair, case));
                let other = rows.differs(&few, &many);
                found.extend(other.map(|operand| format!("{key}[{}] on {arch}: {operand}", pair.variant)));
            }
        }
        found
    };
    let found: Vec<String> = keys.par_iter().flat_map_iter(differing).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
