//! Kernels measured by themselves: those that no plan launches yet among them.

use std::fmt;

use clap::Args;
use precast_kernels::{Arch, Batch, KERNELS};
use precast_plan::{Plan, Recipe};
use precast_runtime::{Driver, selftest};
use serde::Serialize;

use crate::device;
use crate::device::bundle::BundleSource;
use crate::options::DeviceOptions;
use crate::options::groups::values::count;
use crate::run::failure::Failure;

/// Seed of the random inputs.
const SEED: u64 = 1;

/// Inputs are made on the host: of the largest ones a few gigabytes.
const MOST_TOKENS: u64 = 1 << 16;

/// Time of one launch of a kernel.
#[derive(Debug, Serialize)]
pub struct KernelTime {
    key: String,
    variant: String,
    bytes: u64,
    flops: u64,
    microseconds: f64,
}

impl fmt::Display for KernelTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, variant, bytes, flops, microseconds } = self;
        // Bytes and operations a microsecond are MB/s and MFLOP/s.
        let (gb_s, gflop_s) = (*bytes as f64 / microseconds / 1e3, *flops as f64 / microseconds / 1e3);
        let mb = *bytes as f64 / 1e6;
        write!(f, "{microseconds:>9.2} us {mb:>8.2} MB {gb_s:>8.1} GB/s {gflop_s:>9.1} GFLOP/s  {key}[{variant}]")
    }
}

/// Opens a device, with its row and the bundle of its kernels, whichever plan launches them.
///
/// # Errors
/// [`Failure::Kernels`] on the simulated GPU, unless it is given a bundle: it has none of its own.
pub fn open_kernels(target: &DeviceOptions) -> Result<(Box<dyn Driver>, Arch, BundleSource), Failure> {
    let DeviceOptions { device, kernels } = target;
    let driver = device::open(*device, kernels)?;
    let arch = device::rows(driver.device())?.code;
    if arch == Arch::Sim && kernels.bundle.is_none() {
        let nothing = "nothing to check: the simulated GPU executes the host references that kernels are compared \
            with. \
                       Use --device cuda:0 where there is a GPU; or check the references themselves by --bundle \
                       FILE, which \
                       `precast kernels --write FILE` makes";
        return Err(Failure::Kernels(nothing.to_owned()));
    }
    let nothing = Plan { arch, buffers: Vec::new(), phases: Vec::new(), arena_bytes: 0 };
    Ok((driver, arch, kernels.find(arch, &nothing)?))
}

/// Kernels to measure, and the batch of their launches.
#[derive(Args)]
pub struct KernelBench {
    /// Measure kernels whose keys begin with this, as `gemm.`
    #[arg(value_name = "PREFIX")]
    prefix: String,
    /// Sequences of the batch [default: 8]
    #[arg(long, value_name = "B", value_parser = count(Recipe::MOST_TOKENS))]
    batch_size: Option<u32>,
    /// Tokens of each [default: 1024]
    #[arg(long, value_name = "S", value_parser = count(Recipe::MOST_TOKENS))]
    seq_len: Option<u32>,
    #[command(flatten)]
    target: DeviceOptions,
}

/// Times each kernel that is asked for, built as each of the variants there are: the launch that a large model has for
/// the batch.
///
/// # Errors
/// [`Failure`] of the device or the bundle, or where there is no such kernel.
pub fn time_kernels(request: &KernelBench) -> Result<Vec<KernelTime>, Failure> {
    let KernelBench { prefix, batch_size, seq_len, target } = request;
    let batch = Batch { sequences: batch_size.unwrap_or(8), seq_len: seq_len.unwrap_or(1024) };
    let tokens = u64::from(batch.sequences) * u64::from(batch.seq_len);
    if tokens > MOST_TOKENS {
        let Batch { sequences, seq_len } = batch;
        return Err(Failure::usage(format!(
            "--batch-size {sequences} of --seq-len {seq_len} are {tokens} tokens: kernels are measured with \
            {MOST_TOKENS} at most"
        )));
    }
    let (driver, arch, source) = open_kernels(target)?;
    let bundle = source.open()?;
    let mut timed = Vec::new();
    let report = |launch: selftest::Timed| {
        timed.push(KernelTime {
            key: launch.pair.key.to_string(),
            variant: launch.pair.variant.to_string(),
            bytes: launch.bytes,
            flops: launch.flops,
            microseconds: launch.seconds * 1e6,
        });
    };
    // The simulated GPU, whose references take minutes for many tokens, takes the largest sample where no batch is
    // asked for.
    let batch = Some(batch).filter(|_| arch != Arch::Sim || batch_size.is_some() || seq_len.is_some());
    selftest::time(driver, &bundle, prefix, batch, SEED, report).map_err(|error| source.not_loaded(error, &[]))?;
    if timed.is_empty() {
        return Err(Failure::usage(missing(prefix, arch)));
    }
    Ok(timed)
}

/// Returns the message for a bundle with no kernel whose key starts with `prefix`.
pub fn missing(prefix: &str, arch: Arch) -> String {
    let known = KERNELS.examples().into_iter().find(|key| key.text().starts_with(prefix));
    let next = match known {
        // A kernel that no plan of the bundle's models launches.
        Some(key) => format!(
            "`precast-aot build --key {} --arch {} --out FILE` builds it for --bundle FILE",
            key.op(),
            arch.argument()
        ),
        None => "`precast kernels` lists them".to_owned(),
    };
    format!("no kernel for {arch} has a key that begins with `{prefix}`: {next}")
}
