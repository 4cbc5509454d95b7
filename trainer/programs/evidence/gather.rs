//! Collects what a chip computes.

use std::collections::BTreeMap;

use precast_fatbins::evidence::{Chip, Evidence, Kernel, Launch, Program, VERSION, short};
use precast_kernels::Arch;
use precast_runtime::Rows;
use precast_runtime::selftest::{selftest, time};

use super::golden;
use crate::base::notes::tell;
use crate::device;
use crate::options::DeviceOptions;
use crate::programs::bench::missing;
use crate::run::failure::Failure;

const SIMULATED: &str = "the simulated GPU executes the host references that kernels are compared with: nothing here \
    was computed by a \
                         chip, and a comparison with it compares references with themselves";

/// Checks every kernel of the bundle on random inputs of a seed, trains the built-in case and times every kernel.
///
/// # Errors
/// [`Failure`] where there is nothing to check or the device fails. What the checks find wrong is in the evidence.
pub fn gather(target: &DeviceOptions, seed: u64) -> Result<Evidence, Failure> {
    let open = || device::open(target.device, &target.kernels);
    let driver = open()?;
    let opened = driver.device().clone();
    let Rows { launches, code: arch } = device::rows(&opened)?;
    let source = target.kernels.find(arch, &golden::plan(target, &opened)?)?;
    let bundle = source.open()?;
    let not_loaded = |error| source.not_loaded(error, &[]);

    tell("every kernel against its reference ...");
    let mut kernels = BTreeMap::<String, Kernel>::new();
    let checked = selftest(driver, &bundle, "", seed, |outcome| {
        let kernel = kernels.entry(outcome.pair.to_string()).or_default();
        kernel.source = short(&outcome.pair.source_digest(arch).to_string()).to_owned();
        let outputs = outcome.outputs.iter().map(|output| (output.operand, output.format, &*output.bytes));
        kernel.launches.push(Launch::of(outcome.sample, outputs));
        kernel.faults.extend(outcome.result.err().map(|fault| format!("sample {}: {fault}", outcome.sample)));
    });
    checked.map_err(not_loaded)?;
    if kernels.is_empty() {
        return Err(Failure::usage(missing("", arch)));
    }
    tell("a short training run in each precision ...");
    let golden = golden::run(target)?;
    if arch != Arch::Sim {
        tell("the time of every kernel ...");
        let timed = time(open()?, &bundle, "", None, seed, |launch| {
            kernels.entry(launch.pair.to_string()).or_default().microseconds = Some(launch.seconds * 1e6);
        });
        timed.map_err(not_loaded)?;
    }
    Ok(Evidence {
        version: VERSION,
        program: Program { version: env!("CARGO_PKG_VERSION").to_owned(), bundle: bundle.digest().to_string() },
        chip: Chip {
            name: opened.name,
            arch: launches.to_string(),
            driver: opened.driver_version,
            memory_bytes: opened.total_bytes,
            host: std::env::consts::ARCH.to_owned(),
        },
        note: (arch == Arch::Sim).then(|| SIMULATED.to_owned()),
        seed,
        kernels,
        golden,
    })
}
