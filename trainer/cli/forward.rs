//! Options of what computes a model without training it: `eval` and `generate`.

use std::path::PathBuf;

use clap::Args;
use precast_plan::{Gemm, Precision};

use crate::device::frozen::Forward;
use crate::options::groups::values::exact_precision;
use crate::options::{DeviceOptions, WeightFormat};
use crate::programs::failure::Failure;

/// A model that is computed and not trained.
#[derive(Args)]
pub(super) struct ForwardOptions {
    /// The model: a Hugging Face directory, a .gguf or an .apr file
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// An adapter of --model: a PEFT directory, as distill and train write it
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// How the weights live on the device. At the same bits: bf16 (the precision), stored (matrices as a GGUF file holds them) or
    /// auto (bf16 where that fits into the device's memory, else stored); at others: int8, in --precision bf16
    #[arg(long, default_value_t = WeightFormat::Auto, value_name = "FORM")]
    pub format: WeightFormat,
    /// Arithmetic: fp32 or bf16 [default: fp32; bf16 where 8 bits are compared]
    #[arg(long, value_name = "P", value_parser = exact_precision)]
    precision: Option<Precision>,
    /// What computes the matrix multiplications of linear layers: bundle (its kernels) or cublas (NVIDIA's cuBLASLt 13), as for
    /// distill; the bits differ
    #[arg(long, value_name = "WHAT", default_value_t)]
    gemm: Gemm,
    #[command(flatten)]
    target: DeviceOptions,
}

impl ForwardOptions {
    /// The request of the device: in bf16 where nothing is said and the weights are in 8 bits, or are compared with such.
    pub fn forward(self, against: Option<WeightFormat>) -> Result<Forward, Failure> {
        let Self { model, adapter, format, precision, gemm, target } = self;
        // 8-bit products give bf16.
        let rounds = format == WeightFormat::Int8 || against.is_some();
        if format == WeightFormat::Int8 && adapter.is_some() {
            return Err(Failure::usage(
                "--format int8 computes no adapters: leave --adapter out, or use --format bf16",
            ));
        }
        let precision = precision.unwrap_or(if rounds { Precision::Bf16 } else { Precision::Fp32 });
        Ok(Forward { model, adapter, precision, gemm, format, target, heading: true })
    }
}
