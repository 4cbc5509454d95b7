//! Why a command fails, and with which exit code.

use std::path::PathBuf;

use precast_fatbins::BundleError;
use precast_kernels::Arch;
use precast_plan::PlanError;
use precast_runtime::cublas::CublasError;
use precast_runtime::{DriverError, LoadError};
use precast_system::files::{self, ListingError};

use crate::base::io::IoError;
use crate::base::note;
use crate::base::stop::Stopped;
use crate::device::watch::Hang;
use crate::device::weight_format::{KERNELS_BYTES, Rounded};
use crate::inputs::adapter::AdapterError;
use crate::inputs::checkpoint::CheckpointError;
use crate::inputs::data::DataError;
use crate::inputs::pair::PairError;
use crate::options::UsageError;
use crate::programs::generate::NotFinite;
use crate::ranks::{self, RankError};
use crate::run::certificate::CertificateError;
use crate::run::identity::Difference;
use crate::run::metrics::MetricsError;
use crate::run::out::OutError;
use crate::run::outcome::Fault;
use crate::run::score::Insufficient;

/// Why a command failed. [`Failure::exit_code`] is part of the command-line contract.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line or run.toml asks for something that cannot be.
    #[error(transparent)]
    Usage(#[from] UsageError),
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
    /// There is no kernel to compare with its reference.
    #[error(
        "nothing to check: the simulated GPU executes the host references that kernels are compared with. \
         Use --device cuda:0 where there is a GPU, or --bundle FILE to check the references themselves"
    )]
    NothingToCheck,
    /// Kernels compute something else than their references.
    #[error("{failed} of {checked} kernel checks failed on {device}")]
    Selftest {
        /// How many failed.
        failed: usize,
        /// Of how many.
        checked: usize,
        device: String,
    },
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
    /// A check of `precast doctor` found something bad.
    #[error("{} of {checked} checks are BAD: {}", bad.len(), bad.join(", "))]
    Doctor {
        /// What is bad.
        bad: Vec<&'static str>,
        /// Of how many.
        checked: usize,
        /// The exit code of the first.
        exit_code: u8,
    },
    /// The device or its driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
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
    /// A plan takes more memory than there is.
    #[error(
        "this run does not fit: it takes {needed} bytes of device memory, up to {KERNELS_BYTES} for kernels{}, and {room}.\n{}",
        if *host > 0 { format!(" and {host} for the host, which shares it") } else { String::new() },
        change.as_ref().map_or_else(
            || "Neither smaller micro-batches, --recompute, other formats nor shorter sequences make it fit: use smaller models, or \
                a GPU with more memory".to_owned(),
            |change| format!("The least change that fits: {change}")
        )
    )]
    TooLarge {
        /// By the plan.
        needed: u64,
        /// What the host takes of the same memory.
        host: u64,
        /// What there is.
        room: String,
        /// Options by which the run fits, and what it takes then.
        change: Option<String>,
    },
    /// Model and run do not go together.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A model cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// An adapter cannot be read.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// Training data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A smoke test did not show what it must.
    #[error("smoke: {0}")]
    Smoke(String),
    /// A teacher that is not exact is not known to be good enough.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A model's score is not good enough.
    #[error(transparent)]
    Score(#[from] Insufficient),
    /// A model predicts nothing.
    #[error(transparent)]
    Generate(#[from] NotFinite),
    /// Lines for people or programs did not arrive.
    #[error("cannot write to standard output: {0}")]
    Output(String),
    /// There is no run at a path.
    #[error("no run at {}: expected a directory that `precast distill --out` or `precast train --out` wrote, with run.json and metrics.jsonl", .0.display())]
    NoRun(PathBuf),
    /// A teacher cannot teach a student.
    #[error(transparent)]
    Pair(PairError),
    /// A file of the run cannot be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// An output directory must not be used so.
    #[error(transparent)]
    Out(#[from] OutError),
    /// The run in the output directory is another one.
    #[error(
        "--resume: {} is another run:\n{}\nUse the values that it was started with, or choose another --out",
        path.display(),
        differences.iter().map(|difference| format!("  {difference}")).collect::<Vec<_>>().join("\n")
    )]
    OtherRun {
        path: PathBuf,
        /// Each value that is not the same.
        differences: Vec<Difference>,
    },
    /// A checkpoint is not as it was written.
    #[error(
        "{} is damaged: {error}\n{}",
        path.display(),
        match before {
            Some(before) => format!("Remove it to continue from {before}"),
            None => "There is no earlier checkpoint: remove this one and start the run again with --overwrite".to_owned(),
        }
    )]
    Damaged {
        path: PathBuf,
        /// The one before it, if there is one.
        before: Option<String>,
        /// What is wrong with it.
        error: ListingError,
    },
    /// A line of `metrics.jsonl` is not what a run wrote.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A resumed run would not have trained on the tokens that the run has seen.
    #[error(
        "{}: the tokens of its {step} steps are not those that this program would have trained on. The data are the same, \
         so another version of Precast started the run: continue it with that version", path.display()
    )]
    Tokens { path: PathBuf, step: u64 },
    /// The device hangs.
    #[error(transparent)]
    Hung(Box<Hang>),
    /// Ranks did not come together, or one of them has failed.
    #[error(transparent)]
    Rank(RankError),
    /// A signal asked the run to stop, and it did.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The run reached its last step and did not do its work.
    #[error(transparent)]
    Run(#[from] Fault),
    /// Losses stopped being numbers.
    #[error(
        "{steps} steps in a row had a gradient norm that is not finite; the weights are those before them. \
         Lower --lr, lengthen --warmup, or use --precision fp32"
    )]
    Diverged { steps: u32 },
}

impl Failure {
    /// 1 failed (a disk that is full for one), 2 usage, 3 bundle or kernels, 4 device, 5 data, model or checkpoint that cannot
    /// be used, or a file that may not grow further (`ulimit -f`), 129, 130, 131 and 143 stopped by a signal.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Io(IoError { error, .. })
            | Failure::Checkpoint(CheckpointError::Io { error, .. })
            | Failure::Out(OutError::Io { error, .. })
                if files::is_past_limit(error) =>
            {
                5
            }
            Failure::Usage(_)
            | Failure::Plan(
                PlanError::SequenceTooLong { .. }
                | PlanError::Tokens { .. }
                | PlanError::TooLarge { .. }
                | PlanError::NoTeacher
                | PlanError::Rank { .. }
                | PlanError::Replicas { .. }
                | PlanError::StoredWithoutAdapters
                | PlanError::Int8Precision
                | PlanError::Rotation { .. }
                | PlanError::StudentRotation { .. }
                | PlanError::Int8Depth { .. }
                | PlanError::StoredInt8
                | PlanError::BaseWithoutAdapters,
            )
            | Failure::Certificate(CertificateError::Missing { .. })
            | Failure::Driver(DriverError::NoCublas) => 2,
            Failure::Load(LoadError::Driver(_) | LoadError::Unsupported { .. }) => 4,
            Failure::NothingToCheck
            | Failure::Load(_)
            | Failure::Bundle { .. }
            | Failure::NotInBundle { .. }
            | Failure::NoBundle { .. }
            | Failure::Embedded(_)
            | Failure::Cublas(_)
            | Failure::Selftest { .. } => 3,
            Failure::Hung(_) => Hang::EXIT_CODE,
            Failure::Driver(_)
            | Failure::NoGpu { .. }
            | Failure::Memory { .. }
            | Failure::OneMemory { .. }
            | Failure::TooLarge { .. }
            | Failure::NeitherFits { .. } => 4,
            Failure::Doctor { exit_code, .. } => *exit_code,
            // What cannot be written, be it a checkpoint, is no fault of what was read.
            Failure::Checkpoint(CheckpointError::WouldNotBeFinite { .. } | CheckpointError::Space { .. }) => 1,
            Failure::Checkpoint(CheckpointError::Io { what, .. }) if *what != "read" => 1,
            Failure::Plan(PlanError::TeacherNarrower { .. } | PlanError::UnknownProjection { .. })
            | Failure::Checkpoint(_)
            | Failure::Adapter(_)
            | Failure::Data(_)
            | Failure::Pair(_)
            | Failure::Certificate(CertificateError::Unreadable { .. } | CertificateError::Other { .. })
            | Failure::NoRun(_) => 5,
            Failure::Score(Insufficient::OtherTokens { .. }) => 5,
            Failure::Out(OutError::Io { .. } | OutError::Gone { .. })
            | Failure::Score(_)
            | Failure::Generate(_)
            | Failure::Certificate(CertificateError::NotFinite { .. } | CertificateError::TooFar { .. })
            | Failure::Smoke(_)
            | Failure::Run(_)
            | Failure::Io(_)
            | Failure::Output(_)
            | Failure::Diverged { .. } => 1,
            Failure::Out(_) | Failure::OtherRun { .. } => 2,
            Failure::Damaged { .. } | Failure::Metrics(_) | Failure::Tokens { .. } => 5,
            Failure::Rank(RankError::Usage(_) | RankError::Different(_)) => 2,
            Failure::Rank(RankError::Failed { exit_code, .. }) => *exit_code,
            Failure::Rank(_) => 1,
            Failure::Stopped(Stopped { signal, .. }) => signal.exit_code(),
        }
    }

    /// Says on standard error why the program ends, unless another rank does.
    pub fn tell(&self) {
        let stopped = matches!(self, Self::Stopped(_));
        if !(stopped && note::is_silent() || matches!(self, Self::Rank(error) if ranks::is_printed_by_another(error))) {
            note::tell(format_args!("{}{self}", if stopped { "" } else { "error: " }));
        }
    }

    /// What a command line asks for cannot be.
    pub fn usage(what: impl Into<String>) -> Self {
        UsageError(what.into()).into()
    }

    /// Wraps an I/O error of a file of the run.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let named = IoError::of(what, path);
        move |error| named(error).into()
    }
}

/// What a floor's error passes on of those below is a failure of its own, whoever passes it on.
macro_rules! passes_on {
    ($floors:ident: $($passed:ident),+; $own:ident) => {
        impl From<$floors> for Failure {
            fn from(error: $floors) -> Self {
                match error {
                    $($floors::$passed(error) => error.into(),)+
                    own => Self::$own(own),
                }
            }
        }
    };
}

passes_on!(PairError: Checkpoint; Pair);
passes_on!(RankError: Driver, Stopped; Rank);

impl From<Hang> for Failure {
    fn from(hang: Hang) -> Self {
        Self::Hung(Box::new(hang))
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
