//! `cargo xtask simt`: the CUDA sources of every key and variant of every architecture, executed on the CPU.

mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use precast_aot::build::Request;
use precast_aot::compile::Task;
use precast_aot::models::Model;
use precast_kernels::{Arch, KeyVariant, examples};
use precast_simt::{Simt, check_all};
use rayon::prelude::*;

use crate::setup;

pub use report::report;

/// Of the scheduler and of the random inputs.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Architectures whose kernels are executed: all that have machine code.
const ARCHS: [Arch; 4] = [Arch::Sm89, Arch::Sm90a, Arch::Sm90Portable, Arch::Sm121];
/// Those whose kernels are counted: nobody here has one, and of Hopper's instructions nothing is counted.
const COUNTED: [Arch; 2] = [Arch::Sm89, Arch::Sm121];

/// Of the fewest launches that find what there is: a seed changes which of two conflicting accesses comes second.
const ONE_SEED: [u64; 1] = [1];

/// Every (key, variant) of every built-in model and example, on some architectures, whose name has `text`. None is an error:
/// what checks nothing finds nothing.
fn tasks(text: &str, archs: &[Arch]) -> Result<Vec<Task>> {
    let request = Request { models: Model::built_in(), keys: examples(), archs: archs.to_vec() };
    named(text, request.tasks())
}

fn named(text: &str, mut tasks: Vec<Task>) -> Result<Vec<Task>> {
    tasks.retain(|task| task.to_string().contains(text));
    ensure!(!tasks.is_empty(), "no kernel has `{text}` in its name: `cargo xtask simt` runs them all");
    Ok(tasks)
}

/// Checks every (key, variant) of every built-in model and example whose name has `text`, with three seeds.
pub fn simt(text: &str) -> Result<()> {
    run(text, &SEEDS)
}

/// The whole matrix, with one seed.
pub fn all() -> Result<()> {
    run("", &ONE_SEED)
}

fn run(text: &str, seeds: &[u64]) -> Result<()> {
    let mut pairs: BTreeMap<KeyVariant, Vec<Arch>> = BTreeMap::new();
    for Task { pair, arch } in tasks(text, &ARCHS)? {
        pairs.entry(pair).or_default().push(arch);
    }
    setup::debian(&["g++"])?;
    let simt = Simt::new(Path::new("target/simt"))?;
    let (started, launches) = (Instant::now(), AtomicUsize::new(0));
    let builds: usize = pairs.values().map(Vec::len).sum();
    let pairs: Vec<(KeyVariant, Vec<Arch>)> = pairs.into_iter().collect();
    let faults: Vec<String> = pairs
        .par_iter()
        .with_max_len(1)
        .filter_map(|(pair, archs)| {
            let started = Instant::now();
            let named = archs.iter().map(Arch::to_string).collect::<Vec<_>>().join(" ");
            match check_all(&simt, &pair.key, pair.variant, archs, seeds) {
                Ok(outcome) => {
                    launches.fetch_add(outcome.launches, Ordering::Relaxed);
                    let (seconds, worst) = (started.elapsed().as_secs_f64(), outcome.worst);
                    println!("{pair} for {named}: {} launches, distance {worst:.1e}, {seconds:.1} s", outcome.launches);
                    None
                }
                Err(fault) => Some(format!("{pair} for {named}: {fault}")),
            }
        })
        .collect();
    ensure!(faults.is_empty(), "{} of {} kernels\n{}", faults.len(), pairs.len(), faults.join("\n"));
    let (launches, seconds) = (launches.into_inner(), started.elapsed().as_secs_f64());
    println!("== {builds} kernels, {launches} launches: as their references, no rule broken; {seconds:.0} s");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_kernel_has_is_an_error() {
        let request = Request { models: Vec::new(), keys: examples(), archs: ARCHS.to_vec() };
        let found = named("rmsnorm.fwd", request.tasks()).unwrap();
        assert!(
            found.iter().all(|task| task.to_string().contains("rmsnorm.fwd")) && found.len() < request.tasks().len()
        );
        let error = named("rmsnrom", request.tasks()).err().unwrap().to_string();
        assert_eq!(error, "no kernel has `rmsnrom` in its name: `cargo xtask simt` runs them all");
    }
}
