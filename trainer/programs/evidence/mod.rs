//! `precast evidence`: what this chip computes, written down for others to compare with theirs.

mod golden;

use std::path::Path;

use precast_fatbins::Digest;
use precast_fatbins::evidence::{Check, Chip, Evidence, Finding, Loaded, Output, Program, Sketch, Timing, VERSION};
use precast_kernels::Arch;
use precast_runtime::selftest::{SelftestOutcome, selftest, time};
use precast_runtime::{Device, Load, Rows};

use crate::device;
use crate::options::DeviceOptions;
use crate::programs::bench::missing;
use crate::programs::failure::Failure;

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
        let timed = time(driver, &bundle, "", None, seed, |timed| {
            bench.push(Timing {
                kernel: timed.pair.to_string(),
                microseconds: timed.seconds * 1e6,
                bytes: timed.bytes,
                flops: timed.flops,
            });
        });
        timed.map_err(|error| source.not_loaded(error, &[]))?;
    }
    Ok(Evidence {
        version: VERSION,
        program: Program {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sha256: own_digest()?.to_string(),
            bundle: bundle.digest().to_string(),
        },
        chip: chip(&opened, launches),
        note: (arch == Arch::Sim).then(|| SIMULATED.to_owned()),
        doctor,
        loads: loads.iter().map(|load| loaded(load, arch)).collect(),
        seed,
        checks,
        golden,
        bench,
    })
}

fn chip(device: &Device, arch: Arch) -> Chip {
    Chip {
        name: device.name.clone(),
        arch: arch.to_string(),
        compute_capability: device.compute_capability,
        driver: device.driver_version,
        memory_bytes: device.total_bytes,
        integrated: device.integrated,
        multiprocessors: device.clocks.multiprocessors,
        host: std::env::consts::ARCH.to_owned(),
    }
}

fn loaded(load: &Load, arch: Arch) -> Loaded {
    Loaded {
        kernel: load.pair.to_string(),
        source: load.pair.source_digest(arch).to_string(),
        sha256: load.digest.map(|digest| digest.to_string()),
        bytes: load.bytes,
        microseconds: load.microseconds,
    }
}

fn check(outcome: SelftestOutcome) -> Check {
    let outputs = outcome.outputs.iter().map(|output| Output {
        operand: output.operand.to_owned(),
        sha256: Digest::of(&output.bytes).to_string(),
        sketch: Sketch::of(output.format, &output.bytes),
    });
    Check {
        kernel: outcome.pair.to_string(),
        sample: outcome.sample,
        fault: outcome.result.err().map(|fault| fault.to_string()),
        outputs: outputs.collect(),
    }
}

fn own_digest() -> Result<Digest, Failure> {
    let path = Path::new("/proc/self/exe");
    precast_system::files::digest(path).map_err(Failure::io("read", path))
}
