//! `precast selftest`

use std::path::PathBuf;

use clap::{Args, value_parser};
use precast_kernels::Arch;
use precast_plan::decoding::BUCKETS;
use precast_plan::{Gemm, Precision};
use precast_runtime::selftest::selftest;
use precast_system::{count, say};

use super::output::print_as;
use crate::base::load_trace::Verbose;
use crate::device::frozen::Forward;
use crate::device::run_heading::Heading;
use crate::options::groups::values::{exact_precision, model};
use crate::options::{DeviceOptions, WeightFormat};
use crate::programs::bench::{missing, open_kernels};
use crate::programs::decode_check::{DecodeCheck, check_decoding};
use crate::run::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    target: DeviceOptions,
    /// Check only kernels whose keys start with this: `gemm.`, `attention.fwd`
    #[arg(long, default_value = "", value_name = "PREFIX", conflicts_with = "model")]
    kernel: String,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Print every launch, not only failures, and each kernel that is loaded
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    decoding: Decoding,
}

/// A model whose decoding is checked in place of kernels.
#[derive(Args)]
struct Decoding {
    /// Check instead that decoding under this model has the bits of its forward pass: every logit of random sequences
    #[arg(long, value_name = "PATH", value_parser = model())]
    model: Option<PathBuf>,
    /// Adapter of --model: a PEFT directory
    #[arg(long, value_name = "DIR", requires = "model")]
    adapter: Option<PathBuf>,
    /// Form of the weights on the device, as for eval: bf16, stored, int8 or auto
    #[arg(long, default_value_t = WeightFormat::Auto, value_name = "FORM", requires = "model")]
    format: WeightFormat,
    /// Arithmetic: fp32 or bf16 [default: fp32; bf16 where 8 bits are compared]
    #[arg(long, value_name = "P", value_parser = exact_precision, requires = "model")]
    precision: Option<Precision>,
    /// Library of the matrix multiplications of linear layers: bundle; cublas is refused, as its rows depend on their
    /// number
    #[arg(long, value_name = "WHAT", default_value_t, requires = "model")]
    gemm: Gemm,
    /// Sequences at a time
    #[arg(long, value_name = "R", default_value_t = 128, requires = "model",
          value_parser = value_parser!(u32).range(1..=i64::from(BUCKETS[BUCKETS.len() - 1])))]
    rows: u32,
    /// Tokens of a sequence at most [default: 128, or what the model takes]
    #[arg(long, value_name = "S", requires = "model", value_parser = value_parser!(u32).range(1..=1 << 22))]
    seq_len: Option<u32>,
    /// Decoded tokens to compare, at least
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "model", value_parser =
        value_parser!(u64).range(1..))]
    tokens: u64,
    /// Print JSON
    #[arg(long, requires = "model")]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    Verbose { verbose: arguments.verbose }.start();
    match arguments.decoding.model.clone() {
        Some(model) => decoding(model, arguments),
        None => kernels(&arguments),
    }
}

/// Checks that decoding has the bits of the forward pass.
fn decoding(model: PathBuf, Arguments { target, seed, decoding, .. }: Arguments) -> Result<(), Failure> {
    let Decoding { adapter, format, precision, gemm, rows, seq_len, tokens, json, .. } = decoding;
    let forward = Forward { model, adapter, format, precision, gemm, target, teacher: None, heading: !json };
    let compared = check_decoding(&DecodeCheck { forward, rows, seq_len, tokens, seed })?;
    print_as(json, &compared, compared);
    Ok(compared.check()?)
}

/// Checks kernels.
fn kernels(arguments: &Arguments) -> Result<(), Failure> {
    let (driver, arch, source) = open_kernels(&arguments.target)?;
    let opened = driver.device().clone();
    let bundle = source.open()?;
    let modules = bundle.modules(arch).map_or(0, |modules| modules.len());
    say!("{}", Heading::new(&opened, bundle.digest(), modules));
    let (mut checked, mut failed) = (0, 0);
    selftest(driver, &bundle, &arguments.kernel, arguments.seed, |outcome| {
        checked += 1;
        match outcome.result {
            Ok(distance) if arguments.verbose => {
                say!("ok    {:.2e}  {} #{}", distance.norm, outcome.pair, outcome.sample);
            }
            Ok(_) => {}
            Err(fault) => {
                failed += 1;
                say!("FAIL  {} #{}: {fault}", outcome.pair, outcome.sample);
            }
        }
    })
    .map_err(|error| source.not_loaded(error, &[]))?;
    if checked == 0 {
        return Err(Failure::usage(missing(&arguments.kernel, arch)));
    }
    say!("{} checked on {}, {failed} failed", count(checked, "launch"), opened.name);
    if arch == Arch::Sim {
        say!(
            "the simulated GPU executes the host references: they were compared with themselves, and no machine code \
            was"
        );
    }
    if failed > 0 {
        return Err(Failure::Kernels(format!("{failed} of {checked} kernel checks failed on {}", opened.name)));
    }
    Ok(())
}
