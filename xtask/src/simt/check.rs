//! Chooses kernels, and executes them under the checker.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use precast_aot::compile::Task;
use precast_kernels::{Arch, KERNELS, Key};
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

/// Fields of keys that are lengths of rows, and so trip counts of loops. Others, such as the width of a head, determine
/// tiles.
const LENGTHS: [&str; 3] = ["h", "k", "n"];

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

/// Checks every example with one seed, and, of models' keys that differ only in lengths of rows, one each: sources and
/// all other macros are equal. Checks that this program has passed before are skipped.
pub fn representative() -> Result<()> {
    println!("\n== kernels: the sources of every operation and variant of every architecture, executed");
    setup::debian(&["g++"])?;
    run(representatives(tasks("", &ARCHS)?), &ONE_SEED, Some(&Passed::open(Path::new(PASSED))?))
}

fn representatives(tasks: Vec<Task>) -> Vec<Task> {
    let examples: BTreeSet<Key> = KERNELS.examples().into_iter().collect();
    // Examples come first: their sizes are chosen for checks.
    let (own, of_models): (Vec<Task>, Vec<Task>) =
        tasks.into_iter().partition(|task| examples.contains(&task.pair.key));
    let mut seen = BTreeSet::new();
    let name = |task: &Task| (without_lengths(task.pair.key.text()), task.pair.variant.to_string(), task.arch);
    seen.extend(own.iter().map(name));
    own.into_iter().chain(of_models.into_iter().filter(|task| seen.insert(name(task)))).collect()
}

/// Returns a key's text without the lengths of its rows: `rmsnorm.fwd{residual=false,x=bf16}`.
fn without_lengths(key: &str) -> String {
    let is_length = |field: &str| LENGTHS.iter().any(|name| field.split_once('=').is_some_and(|(own, _)| own == *name));
    let (op, fields) = key.trim_end_matches('}').split_once('{').unwrap_or((key, ""));
    let others: Vec<&str> = fields.split(',').filter(|field| !is_length(field)).collect();
    format!("{op}{{{}}}", others.join(","))
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
    fn every_source_is_represented_with_all_its_macros_but_lengths() {
        let all = tasks("", &ARCHS).unwrap();
        let macros = |tasks: &[Task]| -> BTreeSet<String> {
            let of = |task: &Task| {
                let mut defines = task.pair.defines(task.arch);
                defines.retain(|(name, _)| !["KEY_H", "KEY_K", "KEY_N", "ENTRY"].contains(&&**name));
                format!("{} {} {defines:?}", task.arch, task.pair.source().path)
            };
            tasks.iter().map(of).collect()
        };
        let some = representatives(all.clone());
        assert_eq!(macros(&some), macros(&all));
        assert!(
            some.len() < all.len()
                && KERNELS.examples().iter().all(|key| some.iter().any(|task| task.pair.key == *key))
        );
    }

    /// A check of a new kernel runs its examples: a dtype that they leave out would go unchecked.
    #[test]
    fn examples_have_every_value_of_a_field_that_models_launch() {
        let values = |keys: &mut dyn Iterator<Item = Key>| -> BTreeSet<(String, String)> {
            let of_key = |key: Key| {
                let text = without_lengths(key.text());
                let (op, fields) =
                    text.trim_end_matches('}').split_once('{').map(|(op, f)| (op.to_owned(), f.to_owned()))?;
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
