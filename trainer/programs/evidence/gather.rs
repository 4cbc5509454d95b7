//! Gathers what a chip computes.

use std::path::Path;

use precast_fatbins::Digest;
use precast_fatbins::evidence::{
    Check, Chip, Evidence, Finding, Loaded, Output, Program, Results, Sketch, Timing, VERSION, Whole,
};
use precast_kernels::Arch;
use precast_runtime::selftest::{SelftestOutcome, Timed, selftest, time};
use precast_runtime::{Load, Rows};

use super::golden;
use crate::device;
use crate::options::DeviceOptions;
use crate::programs::bench::missing;
use crate::run::failure::Failure;

const SIMULATED: &str = "the simulated GPU executes the host references that kernels are compared with: nothing here was computed by a \
                         chip, and a comparison with it compares references with themselves";

/// Checks every kernel of the bundle on random inputs of a seed, trains the built-in case and times every kernel.
/// `doctor` is what `precast doctor` found, and `say` is told what happens.
///
/// # Errors
/// [`Failure`] where there is nothing to check or the device fails. What the checks find wrong is in the evidence.
pub fn gather(
    target: &DeviceOptions,
    seed: u64,
    doctor: Vec<Finding>,
    mut say: impl FnMut(&str),
) -> Result<Evidence, Failure> {
    let DeviceOptions { device: choice, kernels } = target;
    let driver = device::open(*choice, kernels)?;
    let opened = driver.device().clone();
    let Rows { launches, code: arch } = device::rows(&opened)?;
    let source = kernels.find(arch, &golden::plan(&opened)?)?;
    let bundle = source.open()?;

    say("every kernel against its reference");
    let mut checks = Vec::new();
    let loads = selftest(driver, &bundle, "", seed, |outcome| checks.push(check(outcome)));
    let loads = loads.map_err(|error| source.not_loaded(error, &[]))?;
    if checks.is_empty() {
        return Err(Failure::usage(missing("", arch)));
    }
    say("a short training run in each precision");
    let golden = golden::run(target)?;
    let mut bench = Vec::new();
    if arch != Arch::Sim {
        say("the time of every kernel");
        let driver = device::open(*choice, kernels)?;
        let timed = time(driver, &bundle, "", None, seed, |Timed { pair, seconds, bytes, flops }| {
            bench.push(Timing { kernel: pair.to_string(), microseconds: seconds * 1e6, bytes, flops });
        });
        timed.map_err(|error| source.not_loaded(error, &[]))?;
    }
    let loaded = |load: &Load| Loaded {
        kernel: load.pair.to_string(),
        source: load.pair.source_digest(arch).to_string(),
        sha256: load.digest.map(|digest| digest.to_string()),
        bytes: load.bytes,
        microseconds: load.microseconds,
    };
    let own = Path::new("/proc/self/exe");
    let sha256 = precast_system::files::digest(own).map_err(Failure::io("read", own))?.to_string();
    Ok(Evidence {
        version: VERSION,
        program: Program { version: env!("CARGO_PKG_VERSION").to_owned(), sha256, bundle: bundle.digest().to_string() },
        chip: Chip {
            name: opened.name,
            arch: launches.to_string(),
            compute_capability: opened.compute_capability,
            driver: opened.driver_version,
            memory_bytes: opened.total_bytes,
            integrated: opened.integrated,
            multiprocessors: opened.clocks.multiprocessors,
            host: std::env::consts::ARCH.to_owned(),
        },
        note: (arch == Arch::Sim).then(|| SIMULATED.to_owned()),
        seed,
        results: Results::Whole(Whole { doctor, loads: loads.iter().map(loaded).collect(), checks, bench }),
        golden,
    })
}

fn check(SelftestOutcome { pair, sample, result, outputs, .. }: SelftestOutcome) -> Check {
    let outputs = outputs.iter().map(|output| Output {
        operand: output.operand.to_owned(),
        sha256: Digest::of(&output.bytes).to_string(),
        sketch: Sketch::of(output.format, &output.bytes),
    });
    let fault = result.err().map(|fault| fault.to_string());
    Check { kernel: pair.to_string(), sample, fault, outputs: outputs.collect() }
}
