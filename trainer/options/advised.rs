//! The options that do what errors of the runtime and of plans advise: neither knows an option.

use std::borrow::Cow;
use std::fmt::Display;

use precast_plan::{PlanError, ShareError};
use precast_runtime::cublas::CublasError;
use precast_runtime::{DriverError, LoadError, MoreMemory};

/// An error of a room that knows no option.
pub trait Advised: Display {
    /// Returns what is printed behind the error: options that do what it advises. Empty where it advises nothing that
    /// an option does.
    fn options(&self) -> Cow<'static, str>;

    /// Returns the error with them.
    fn advised(&self) -> String {
        format!("{self}{}", self.options())
    }
}

const SIM: &str = ": --device sim";

impl Advised for DriverError {
    fn options(&self) -> Cow<'static, str> {
        let options = match self {
            Self::NoDriver | Self::NoGpu { .. } | Self::OldDriver { .. } => SIM,
            Self::NoCublas => ": leave --gemm cublas out, or use --device cuda:0",
            Self::OutOfDriverMemory { remedy: MoreMemory::SmallerBuffers, .. } => {
                ": a smaller --batch-size or --seq-len, or --recompute blocks"
            }
            _ => "",
        };
        options.into()
    }
}

impl Advised for LoadError {
    fn options(&self) -> Cow<'static, str> {
        match self {
            Self::Unsupported { .. } => SIM.into(),
            Self::Driver(error) => error.options(),
            _ => "".into(),
        }
    }
}

impl Advised for CublasError {
    fn options(&self) -> Cow<'static, str> {
        ": leave --gemm cublas out".into()
    }
}

impl Advised for PlanError {
    fn options(&self) -> Cow<'static, str> {
        let options = match self {
            Self::SequenceTooLong { max_positions, .. } => {
                return format!(": use --seq-len {max_positions} or less").into();
            }
            Self::Keep { most, .. } => return format!(": use --keep-logits {most} or less").into(),
            Self::Replicas(error) => return error.options(),
            Self::StoredWithoutAdapters => ": give --lora-rank or --adapter, or --student-format bf16",
            Self::Int8Precision => ": use --precision bf16 or int8, or weights in bf16",
            Self::StudentRotation { .. } => ". Use --precision bf16",
            Self::StoredInt8 => ". Leave --student-format out, or use --precision bf16",
            Self::BaseWithoutAdapters => ": give --lora-rank or --adapter",
            Self::NoTeacher => ": give --teacher",
            Self::Rounded { .. } => ": leave --ship out",
            Self::Tokens { .. } => ": change --batch-size or --seq-len",
            Self::TooLarge { .. } => ", or use a smaller --batch-size or --seq-len",
            _ => "",
        };
        options.into()
    }
}

impl Advised for ShareError {
    fn options(&self) -> Cow<'static, str> {
        format!(", or --replicas {}", self.ranks).into()
    }
}
