//! The options that do what the runtime's errors advise: it knows no option.

use precast_runtime::cublas::CublasError;
use precast_runtime::{DriverError, LoadError, MoreMemory};

/// An error of the runtime.
pub trait Advised {
    /// Returns what is printed behind the error: options that do what it advises. Empty where it advises nothing that
    /// an option does.
    fn options(&self) -> &'static str;
}

const SIM: &str = ": --device sim";

impl Advised for DriverError {
    fn options(&self) -> &'static str {
        match self {
            Self::NoDriver | Self::NoGpu { .. } | Self::OldDriver { .. } => SIM,
            Self::NoCublas => ": leave --gemm cublas out, or use --device cuda:0",
            Self::OutOfDriverMemory { remedy: MoreMemory::SmallerBuffers, .. } => {
                ": a smaller --batch-size or --seq-len, or --recompute blocks"
            }
            _ => "",
        }
    }
}

impl Advised for LoadError {
    fn options(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => SIM,
            Self::Driver(error) => error.options(),
            _ => "",
        }
    }
}

impl Advised for CublasError {
    fn options(&self) -> &'static str {
        ": leave --gemm cublas out"
    }
}
