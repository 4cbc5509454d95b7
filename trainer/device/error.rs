//! Why a run has no device, no kernels or no room.

use std::fmt;
use std::path::PathBuf;

use precast_fatbins::BundleError;
use precast_kernels::Arch;
use precast_plan::PlanError;
use precast_runtime::cublas::CublasError;
use precast_runtime::{DriverError, LoadError};

use crate::base::io::IoError;
use crate::base::stop::Stopped;
use crate::inputs::adapter::AdapterError;
use crate::inputs::checkpoint::CheckpointError;
use crate::options::UsageError;
use crate::ranks::RankError;

/// A device that does not compute what it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Kernels are missing or a bundle must not be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A bundle file must not be used.
    #[error("{}: {error}", path.display())]
    Bundle { path: PathBuf, error: BundleError },
    /// A bundle file does not hold the kernels of the run.
    #[error("{}: {error}", path.display())]
    NotInBundle {
        path: PathBuf,
        /// What it lacks.
        error: Box<LoadError>,
    },
    /// There is no bundle file where one is named.
    #[error("--bundle {} {reason}\nprecast-aot build --model DIR --arch ARCH --out FILE makes a bundle", path.display())]
    NoBundle {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it is none.
        reason: String,
    },
    /// The embedded bundle is not the one this binary was built with.
    #[error("the embedded bundle must not be used: {0}")]
    Embedded(BundleError),
    /// `--device auto` where there is no GPU and there are kernels for one.
    #[error(
        "--device auto: {found}.\nThere are kernels for {} here, so auto does not fall back to the simulated GPU",
        list(holds)
    )]
    NoGpu {
        /// Why there is none.
        found: DriverError,
        /// What the kernels are for.
        holds: Vec<Arch>,
    },
    /// There is no cuBLASLt that a run can use, and it asks for one.
    #[error(transparent)]
    Cublas(#[from] CublasError),
    /// The run needs more memory than there is.
    #[error(
        "this run needs {needed} bytes of device memory and {device} has {free} free.\n{table}\n{}\
         Use {}--recompute blocks, or a smaller --batch-size or --seq-len (and --grad-accum to keep the step's tokens)",
        optional(int8.as_ref()),
        as_stored(*could_be_stored)
    )]
    Memory {
        /// By the plan.
        needed: u64,
        /// On the device.
        free: u64,
        device: String,
        /// What needs it.
        table: String,
        /// What it would take with weights in 8 bits, where that can be.
        int8: Option<Rounded>,
        /// Whether the student stays as it is, and its file holds it in less.
        could_be_stored: bool,
    },
    /// The run needs more of a memory that host and device share than there is.
    #[error(
        "this run needs {needed} bytes of the memory that {device} shares with the host, and {free} can be taken: what the page \
         cache holds counts as free, and {reserve} bytes stay with the system.\n\
         on the device:\n{table}\nkernels, at most {kernels} bytes; on the host:\n{host}\n\
         End other programs, use {}--recompute blocks, or a smaller --batch-size or --seq-len (and --grad-accum to keep the \
         step's tokens)",
        as_stored(*could_be_stored)
    )]
    OneMemory {
        /// By the plan, for host and device.
        needed: u64,
        /// That a run can take.
        free: u64,
        /// That stays with the system.
        reserve: u64,
        device: String,
        /// What needs it on the device.
        table: String,
        /// What needs it on the host.
        host: String,
        /// What kernels may take besides.
        kernels: u64,
        /// Whether the student stays as it is, and its file holds it in less.
        could_be_stored: bool,
    },
    /// The run needs more memory than there is, however its frozen weights live there.
    #[error(
        "this run fits with weights in neither form: it takes {bf16} bytes of device memory with {flag} bf16, {stored} with \
         {flag} stored, and up to {kernels} for kernels{}, and {device} has {free} free. With stored:\n{table}\n{}\
         Use --recompute blocks, or a smaller --batch-size or --seq-len (and --grad-accum to keep the step's tokens)",
        if *host > 0 { format!(" and {host} for the host, which shares it") } else { String::new() },
        optional(int8.as_deref())
    )]
    NeitherFits {
        /// What chooses the form.
        flag: &'static str,
        /// By the plan, with weights in the precision of the run.
        bf16: u64,
        /// By the plan, with weights as they are stored.
        stored: u64,
        /// With weights in 8 bits, where that can be.
        int8: Option<Box<Rounded>>,
        /// What kernels may take besides.
        kernels: u64,
        /// What the host takes of the same memory.
        host: u64,
        /// On the device.
        free: u64,
        device: String,
        /// What needs it, with weights as they are stored.
        table: String,
    },
    /// The device or its driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The system gives no thread.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Options ask for what cannot be.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Model and run do not go together.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A model cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// An adapter cannot be read.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// Ranks are not connected.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// A signal came before all weights were sent.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What a run would take with weights in 8 bits, as a refusal of one that does not fit says it.
#[derive(Debug)]
pub struct Rounded {
    pub flag: &'static str,
    pub bytes: u64,
}

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, bytes } = self;
        writeln!(
            f,
            "With {flag} int8, which rounds what the products of layers read to 8 bits, it would take {bytes} bytes."
        )
    }
}

fn optional(line: Option<&Rounded>) -> String {
    line.map(ToString::to_string).unwrap_or_default()
}

/// What a run may do before all else, where it can.
fn as_stored(could_be: bool) -> &'static str {
    if could_be { "--student-format stored, " } else { "" }
}

fn list(archs: &[Arch]) -> String {
    archs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
