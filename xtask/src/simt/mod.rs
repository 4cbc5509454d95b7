//! `cargo xtask simt`: the CUDA sources of every portable key and variant, for sm_89 and sm_121, executed on the CPU.

mod report;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use precast_aot::build::Request;
use precast_aot::compile::Task;
use precast_aot::kernels;
use precast_aot::models::Model;
use precast_kernels::{Arch, examples};
use precast_simt::{Simt, check};
use rayon::prelude::*;

use crate::setup;

pub use report::report;

/// Of the scheduler and of the random inputs.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Every (key, variant) of every built-in model and of kernels that none launches yet, on both architectures, whose name has
/// `text`; of a kernel that is named its examples too. None is an error: what checks nothing finds nothing.
fn tasks(text: &str) -> Result<Vec<Task>> {
    let keys = if text.is_empty() { kernels::unlaunched() } else { examples() };
    let request = Request { models: Model::built_in(), keys, archs: vec![Arch::Sm89, Arch::Sm121] };
    let tasks: Vec<Task> = request.tasks().into_iter().filter(|task| task.to_string().contains(text)).collect();
    ensure!(!tasks.is_empty(), "no portable kernel has `{text}` in its name: `cargo xtask simt` runs them all");
    Ok(tasks)
}

/// Checks every (key, variant) of every built-in model whose name has `text`.
pub fn simt(text: &str) -> Result<()> {
    let tasks = tasks(text)?;
    setup::debian(&["g++"])?;
    let simt = Simt::new(Path::new("target/simt"))?;
    let (started, launches) = (Instant::now(), AtomicUsize::new(0));
    let faults: Vec<String> = tasks
        .par_iter()
        .filter_map(|task| {
            let started = Instant::now();
            let result = check(&simt, &task.pair.key, task.pair.variant, task.arch, &SEEDS);
            match result {
                Ok(outcome) => {
                    launches.fetch_add(outcome.launches, Ordering::Relaxed);
                    let (seconds, worst) = (started.elapsed().as_secs_f64(), outcome.worst);
                    println!("{task}: {} launches, distance {worst:.1e}, {seconds:.1} s", outcome.launches);
                    None
                }
                Err(fault) => Some(format!("{task}: {fault}")),
            }
        })
        .collect();
    ensure!(faults.is_empty(), "{} of {} kernels\n{}", faults.len(), tasks.len(), faults.join("\n"));
    let (launches, seconds) = (launches.into_inner(), started.elapsed().as_secs_f64());
    println!("== {} kernels, {launches} launches: as their references, no rule broken; {seconds:.0} s", tasks.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_kernel_has_is_an_error() {
        assert!(tasks("rmsnorm.fwd").unwrap().iter().all(|task| task.to_string().contains("rmsnorm.fwd")));
        let error = tasks("rmsnrom").err().unwrap().to_string();
        assert_eq!(error, "no portable kernel has `rmsnrom` in its name: `cargo xtask simt` runs them all");
    }
}
