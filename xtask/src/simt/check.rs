//! Chooses kernels, and executes them under the checker.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::Path;

use anyhow::{Result, ensure};
use precast_aot::compile::Task;
use precast_kernels::{Arch, KERNELS, Key, KeyVariant};
use precast_models::{Model, Selection};
use precast_simt::Simt;
use precast_simt::suite::{ARCHS, Check, SEEDS, check_each};

use super::passed::Passed;
use crate::setup;

/// Directory of compiled kernels, shared with the tests of `kernels/simt` and `tests/simt.rs`, for which cargo names it
/// so.
pub(super) const OBJECTS: &str = "target/tmp/kernels";

/// Directory of [`Passed`].
const PASSED: &str = "target/simt/passed";

/// Those whose kernels are counted: nobody here has one, and of Hopper's instructions nothing is counted.
pub(super) const COUNTED: [Arch; 2] = [Arch::Sm89, Arch::Sm121];

/// One seed finds most faults: a seed changes which of two conflicting accesses comes second.
const ONE_SEED: [u64; 1] = [1];

/// Macros that are lengths of rows and windows, and so trip counts of loops, or follow from them. Others, such as the
/// width of a head, determine tiles.
const LENGTHS: [&str; 7] =
    ["KEY_H", "KEY_K", "KEY_N", "KEY_WINDOW", "VARIANT_BLOCKS", "VARIANT_ROW_THREADS", "VARIANT_THREADS"];

/// Returns every (key, variant) of every built-in model and example, on some architectures, whose name contains `text`.
/// An empty result is an error: it would check nothing.
pub(super) fn tasks(text: &str, archs: &[Arch]) -> Result<Vec<Task>> {
    let selection = Selection { models: Model::built_in(), keys: KERNELS.examples(), archs: archs.to_vec() };
    named(text, selection.request().tasks())
}

fn named(text: &str, mut tasks: Vec<Task>) -> Result<Vec<Task>> {
    tasks.retain(|task| task.to_string().contains(text));
    ensure!(!tasks.is_empty(), "no kernel has `{text}` in its name: `cargo xtask simt` runs them all");
    Ok(tasks)
}

/// Checks every (key, variant) of every built-in model and example whose name contains `text`, with three seeds.
pub fn simt(text: &str) -> Result<()> {
    setup::debian(&["g++"])?;
    run(tasks(text, &ARCHS)?, &SEEDS, None)
}

/// Checks [`representatives`] with one seed. Checks that this program has passed before are skipped.
pub fn representative() -> Result<()> {
    println!("\n== kernels: the sources of every operation and variant of every architecture, executed");
    setup::debian(&["g++"])?;
    run(representatives(tasks("", &ARCHS)?), &ONE_SEED, Some(&Passed::open(Path::new(PASSED))?))
}

/// Returns builds among which any two macros have every two values that they have together in all builds: few mistakes
/// take three. [`simt`] checks all.
fn representatives(tasks: Vec<Task>) -> Vec<Task> {
    let mut builds: BTreeMap<KeyVariant, (BTreeSet<String>, Vec<Task>)> = BTreeMap::new();
    let examples: BTreeSet<Key> = KERNELS.examples().into_iter().collect();
    for task in tasks {
        let (pairs, own) = builds.entry(task.pair.clone()).or_default();
        pairs.extend(pairs_of(&task, examples.contains(&task.pair.key)));
        own.push(task);
    }
    let mut builds: BinaryHeap<_> = builds.into_values().map(|(pairs, own)| (pairs.len(), pairs, own)).collect();
    let (mut seen, mut chosen) = (BTreeSet::new(), Vec::new());
    // The build with most new pairs is next. Counts only fall: one that still holds is the largest.
    while let Some((count, mut pairs, own)) = builds.pop() {
        pairs.retain(|pair| !seen.contains(pair));
        if pairs.len() == count {
            seen.extend(pairs);
            chosen.extend(own);
        } else if !pairs.is_empty() {
            builds.push((pairs.len(), pairs, own));
        }
    }
    chosen
}

/// Returns pairs of macros of a build, each with its value; with lengths only of examples, which are chosen for checks.
fn pairs_of(task: &Task, is_example: bool) -> Vec<String> {
    let place = format!("{} {}", task.arch, task.pair.key.op());
    let defines = task.pair.defines(task.arch).into_iter();
    let counts = |name: &str| name != "ENTRY" && (is_example || !LENGTHS.contains(&name));
    let macros: Vec<_> = defines.filter(|(name, _)| counts(name)).chain([Default::default()]).collect();
    let pairs = macros.iter().enumerate().flat_map(|(end, one)| macros[..=end].iter().map(move |other| (one, other)));
    pairs.map(|pair| format!("{place} {pair:?}")).collect()
}

/// Runs what has not passed before. xtask was built a moment ago, of the sources that are there.
fn run(tasks: Vec<Task>, seeds: &[u64], passed: Option<&Passed>) -> Result<()> {
    let simt = Simt::new(Path::new("target/simt"), Path::new(OBJECTS))?;
    let all = Check::of(tasks.into_iter().map(|Task { pair, arch }| (pair, arch)));
    let (before, checks): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|check| passed.is_some_and(|passed| passed.contains(&check.name())));
    let done = |check: &Check, said: Result<&str, &str>| {
        println!("{}", said.unwrap_or_else(|fault| fault));
        Ok(passed.filter(|_| said.is_ok()).map_or(Ok(()), |passed| passed.add(&check.name()))?)
    };
    let said = check_each(&simt, &checks, seeds, &Ok, &done).map_err(anyhow::Error::from_boxed)?;
    println!("== {said}");
    let before: usize = before.iter().map(Check::builds).sum();
    if before > 0 {
        println!("   {before} others were passed before by this very program and g++, and were not run again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_two_macros_are_represented_with_all_their_values_but_lengths() {
        let (all, examples) = (tasks("", &ARCHS).unwrap(), KERNELS.examples());
        let pairs = |tasks: &[Task]| -> BTreeSet<String> {
            tasks.iter().flat_map(|task| pairs_of(task, examples.contains(&task.pair.key))).collect()
        };
        let some = representatives(all.clone());
        assert!(pairs(&some) == pairs(&all) && some.len() < all.len(), "{} of {}", some.len(), all.len());
    }

    /// A check of a new kernel runs its examples: a dtype that they leave out would go unchecked.
    #[test]
    fn examples_have_every_value_of_a_field_that_models_launch() {
        let values = |keys: &mut dyn Iterator<Item = Key>| -> BTreeSet<(String, String)> {
            let of_key = |key: Key| {
                let (op, fields) =
                    key.text().trim_end_matches('}').split_once('{').map(|(op, f)| (op.to_owned(), f.to_owned()))?;
                let is_name =
                    |field: &&str| field.split_once('=').is_some_and(|(_, value)| value.parse::<u64>().is_err());
                let names = fields.split(',').filter(is_name);
                Some(names.map(|field| (op.clone(), field.to_owned())).collect::<Vec<_>>())
            };
            keys.filter_map(of_key).flatten().collect()
        };
        let launched = values(&mut tasks("", &ARCHS).unwrap().into_iter().map(|task| task.pair.key));
        let shown = values(&mut KERNELS.examples().into_iter());
        let missing: Vec<_> = launched.difference(&shown).collect();
        assert!(missing.is_empty() && launched.len() > 100, "{missing:?} of {}", launched.len());
    }

    #[test]
    fn a_name_that_no_kernel_has_is_an_error() {
        let request = precast_aot::Request::of_examples(&KERNELS, ARCHS.to_vec());
        let found = named("rmsnorm.fwd", request.tasks()).unwrap();
        assert!(
            found.iter().all(|task| task.to_string().contains("rmsnorm.fwd")) && found.len() < request.tasks().len()
        );
        let error = named("rmsnrom", request.tasks()).err().unwrap().to_string();
        assert_eq!(error, "no kernel has `rmsnrom` in its name: `cargo xtask simt` runs them all");
    }
}
