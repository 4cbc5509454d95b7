//! Kernels measured by themselves: those that no plan launches yet among them.

use std::fmt;

use precast_kernels::Arch;
use precast_plan::Plan;
use precast_runtime::selftest;
use serde::Serialize;

use crate::bundle::Kernels;
use crate::config::DeviceChoice;
use crate::device;
use crate::error::Failure;

/// Of the random inputs.
const SEED: u64 = 1;

/// What one launch of a kernel takes.
#[derive(Debug, Serialize)]
pub struct KernelTime {
    key: String,
    variant: String,
    /// Which of the kernel's samples.
    sample: usize,
    bytes: u64,
    flops: u64,
    microseconds: f64,
}

impl fmt::Display for KernelTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, variant, sample, bytes, flops, microseconds } = self;
        // Bytes and operations a microsecond are MB/s and MFLOP/s.
        let (gb_s, gflop_s) = (*bytes as f64 / microseconds / 1e3, *flops as f64 / microseconds / 1e3);
        write!(f, "{microseconds:>9.2} us {gb_s:>8.1} GB/s {gflop_s:>9.1} GFLOP/s  {key}[{variant}] #{sample}")
    }
}

/// Times the largest sample of each kernel whose key starts with `prefix`, built as each of the variants there are.
///
/// # Errors
/// [`Failure`] of the device or the bundle, or where there is no such kernel.
pub fn time_kernels(choice: DeviceChoice, kernels: &Kernels, prefix: &str) -> Result<Vec<KernelTime>, Failure> {
    let driver = device::open(choice, kernels)?;
    let arch = device::arch(driver.device())?;
    if arch == Arch::Sim && kernels.bundle.is_none() {
        return Err(Failure::NothingToCheck);
    }
    let nothing = Plan { arch, buffers: Vec::new(), phases: Vec::new(), arena_bytes: 0 };
    let source = kernels.find(arch, &nothing)?;
    let bundle = source.open()?;
    let mut timed = Vec::new();
    let report = |launch: selftest::Timed| {
        timed.push(KernelTime {
            key: launch.pair.key.to_string(),
            variant: launch.pair.variant.to_string(),
            sample: launch.sample,
            bytes: launch.bytes,
            flops: launch.flops,
            microseconds: launch.seconds * 1e6,
        });
    };
    selftest::time(driver, &bundle, prefix, SEED, report).map_err(|error| source.not_loaded(error))?;
    if timed.is_empty() {
        return Err(Failure::Usage(missing(prefix, arch)));
    }
    Ok(timed)
}

/// What is said where no kernel of a bundle has a key that starts with `prefix`.
pub fn missing(prefix: &str, arch: Arch) -> String {
    let known = precast_kernels::examples().into_iter().find(|key| key.text().starts_with(prefix));
    let next = match known {
        // A kernel that no plan of the bundle's models launches.
        Some(key) => format!(
            "`precast-aot build --key {} --arch {} --out FILE` builds it for --bundle FILE",
            key.op(),
            arch.argument()
        ),
        None => "`precast kernels` lists them".to_owned(),
    };
    format!("--kernel {prefix}: no kernel for {arch} has a key that starts so; {next}")
}
