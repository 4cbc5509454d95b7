//! Why a command fails, and with which exit code.

use std::path::PathBuf;

use precast_plan::PlanError;
use precast_runtime::{DriverError, LoadError};
use precast_system::files;

use crate::base::io::IoError;
use crate::base::notes;
use crate::base::stop::Stopped;
use crate::device::DeviceError;
use crate::device::decoding::DecodeError;
use crate::device::watch::Hang;
use crate::inputs::checkpoint::CheckpointError;
use crate::inputs::data::DataError;
use crate::inputs::teacher_cache::CacheError;
use crate::options::{Advised, UsageError};
use crate::ranks::{self, RankError, RankFailure};
use crate::run::error::RunError;
use crate::run::outcome::RunFault;

/// Why a command failed. [`Failure::exit_code`] is part of the command-line contract.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Failure {
    /// The command line or run.toml asks for something that cannot be.
    Usage(#[from] UsageError),
    /// Kernels compute something else than their references, or there are none to compare.
    #[error("{0}")]
    Kernels(String),
    /// A check of `precast doctor` found something bad.
    #[error("{} of {checked} checks are BAD: {}", bad.len(), bad.join(", "))]
    Doctor {
        /// The names of the checks that are bad.
        bad: Vec<&'static str>,
        /// Checks in all.
        checked: usize,
        /// The exit code of the first.
        exit_code: u8,
    },
    /// There is no device, or not what a run takes of it.
    Device(DeviceError),
    /// The device or its driver failed.
    #[error("{}", .0.advised())]
    Driver(#[from] DriverError),
    /// Model and run do not go together.
    #[error("{}", .0.advised())]
    Plan(#[from] PlanError),
    /// A model cannot be read or written.
    Checkpoint(#[from] CheckpointError),
    /// Training data cannot be used.
    Data(#[from] DataError),
    /// A teacher cache cannot be filled or read.
    Cache(CacheError),
    /// A file of the run cannot be read or written.
    Io(#[from] IoError),
    /// An output directory must not be used so, or a run left files in it that cannot be.
    Run(RunError),
    /// The device hangs.
    Hung(#[from] Box<Hang>),
    /// Ranks did not come together, or one of them has failed.
    Rank(RankError),
    /// A signal asked the run to stop, and it did.
    Stopped(#[from] Stopped),
    /// A step of a run has failed.
    Step(#[from] Box<StepFailure>),
    /// Sequences cannot be decoded.
    Decode(DecodeError),
    /// The command did not do its work.
    Fault(#[from] RunFault),
}

/// A failure in a step of a run.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}{remedy}")]
pub struct StepFailure {
    /// Names the step, and the phase of a device.
    pub what: String,
    pub error: Failure,
    /// How the run goes on; empty where the error says it.
    pub remedy: String,
}

impl Failure {
    /// 1 failed (a disk that is full for one), 2 usage, 3 bundle or kernels, 4 device, 5 data, model or checkpoint that
    /// cannot be used, or a file that may not grow further (`ulimit -f`), 129, 130, 131 and 143 stopped by a signal.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Io(IoError { error, .. })
            | Self::Checkpoint(CheckpointError::Io { error, .. })
            | Self::Run(RunError::Directory(IoError { error, .. }))
                if files::is_past_limit(error) =>
            {
                5
            }
            Self::Plan(PlanError::TeacherNarrower { .. } | PlanError::UnknownProjection { .. }) => 5,
            // All else that a plan is refused for, options ask for.
            Self::Usage(_) | Self::Plan(_) | Self::Driver(DriverError::NoCublas) => 2,
            Self::Device(DeviceError::Load(LoadError::Driver(_) | LoadError::Unsupported { .. })) => 4,
            Self::Device(
                DeviceError::Load(_)
                | DeviceError::Bundle(_)
                | DeviceError::NotInBundle { .. }
                | DeviceError::Cublas(_),
            )
            | Self::Kernels(_) => 3,
            Self::Hung(_) => Hang::EXIT_CODE,
            Self::Step(step) => step.error.exit_code(),
            Self::Driver(_) | Self::Device(_) | Self::Cache(CacheError::Space { .. }) => 4,
            Self::Doctor { exit_code, .. } => *exit_code,
            // A file that cannot be written, be it a checkpoint, is no fault of what was read.
            Self::Checkpoint(CheckpointError::WouldNotBeFinite { .. } | CheckpointError::Space { .. }) => 1,
            Self::Checkpoint(CheckpointError::Io { what, .. }) if *what != "read" => 1,
            Self::Checkpoint(_) | Self::Data(_) | Self::Decode(DecodeError::Stops(_)) => 5,
            Self::Run(RunError::Directory(_) | RunError::Gone { .. })
            | Self::Fault(_)
            | Self::Decode(_)
            | Self::Cache(CacheError::Gone(_) | CacheError::Rows { .. })
            | Self::Io(_) => 1,
            Self::Cache(
                CacheError::Damaged { .. }
                | CacheError::Format { .. }
                | CacheError::NoSequence { .. }
                | CacheError::DataChanged { .. }
                | CacheError::LacksData { .. }
                | CacheError::Signature { .. },
            )
            | Self::Run(RunError::Unusable(_)) => 5,
            Self::Cache(_) | Self::Run(_) => 2,
            Self::Rank(RankError::Usage(_) | RankError::Different(_)) => 2,
            Self::Rank(RankError::Failed(RankFailure { exit_code, .. })) => *exit_code,
            Self::Rank(_) => 1,
            Self::Stopped(Stopped { signal, .. }) => signal.exit_code(),
        }
    }

    /// Says on standard error why the program ends, unless another rank does.
    pub fn tell(&self) {
        let stopped = matches!(self, Self::Stopped(_));
        if !(stopped && notes::is_silent() || matches!(self, Self::Rank(error) if ranks::is_printed_by_another(error)))
        {
            notes::tell(format_args!("{}{self}", if stopped { "" } else { "error: " }));
        }
    }

    /// Says of which data a token could not be drawn, whose sequences are numbered from `first` on.
    pub fn of_drawing(self, place: &str, first: u64) -> Self {
        match self {
            Self::Decode(DecodeError::NotFinite { sequence, position }) => {
                let error = DecodeError::NotFinite { sequence: sequence - first, position };
                RunFault(format!("{place}: {error}")).into()
            }
            other => other,
        }
    }

    /// Refuses a command line that asks for what cannot be.
    pub fn usage(what: impl Into<String>) -> Self {
        UsageError(what.into()).into()
    }

    /// Wraps an I/O error of a file of the run.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let named = IoError::of(what, path);
        move |error| named(error).into()
    }
}

/// Turns a floor's error into a failure: one that it passes on from a floor below becomes that floor's failure.
macro_rules! passes_on {
    ($floors:ident: $($passed:ident),+; $own:ident: $($kept:ident),+) => {
        impl From<$floors> for Failure {
            fn from(error: $floors) -> Self {
                match error {
                    $($floors::$passed(error) => error.into(),)+
                    $(own @ $floors::$kept { .. } => Self::$own(own),)+
                }
            }
        }
    };
}

passes_on!(DecodeError: Driver; Decode: NotFinite, Stops);
passes_on!(RankError: Driver, Stopped; Rank: Usage, Failed, Different, Io);
passes_on!(
    DeviceError: Cache, Checkpoint, Driver, Io, Plan, Rank, Stopped, Usage;
    Device: Load, Bundle, NotInBundle, Cublas, Memory, Unfit
);
passes_on!(
    CacheError: Io;
    Cache: NotACache, Busy, Different, Complete, Gone, DataChanged, Missing, Incomplete, Format, Damaged, OtherOption,
        OtherTemperature, OtherVocabulary, OtherTeacher, LacksData,
    LacksHeldOut, LacksMeasured, Space, NoSequence, Signature, Rows
);
passes_on!(RunError: Checkpoint, Driver, Io, Rank; Run: Busy, Directory, Gone, Unfit, Unusable);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use precast_fatbins::SignatureError;

    use super::*;
    use crate::base::signal::Signal;

    fn unwritten() -> IoError {
        IoError::of("write", "student")(ErrorKind::StorageFull.into())
    }

    fn no_model() -> CheckpointError {
        CheckpointError::Wrong("no model at student".to_owned())
    }

    fn unwritten_model() -> CheckpointError {
        CheckpointError::io("write", "student")(ErrorKind::StorageFull.into())
    }

    fn failed() -> RankError {
        RankError::Failed(RankFailure { rank: 1, ranks: 2, exit_code: 3, reason: String::new(), by_itself: true })
    }

    #[test]
    fn an_error_has_one_exit_code_whichever_floor_passes_it_on() {
        let stopped = || Stopped { signal: Signal::Terminate, done: String::new() };
        let usage = || UsageError(String::new());
        let refused = |kind: ErrorKind| RunError::Directory(IoError::of("lock", "out")(kind.into()));
        let cache = || PathBuf::from("cache");
        let failures: [(Failure, u8); 36] = [
            (unwritten().into(), 1),
            (DeviceError::from(unwritten()).into(), 1),
            (RunError::from(unwritten()).into(), 1),
            (usage().into(), 2),
            (DeviceError::from(usage()).into(), 2),
            (PlanError::NoTeacher.into(), 2),
            (DeviceError::from(PlanError::NoTeacher).into(), 2),
            (RunError::Unfit(String::new()).into(), 2),
            (DriverError::NoCublas.into(), 2),
            (DeviceError::from(DriverError::NoCublas).into(), 2),
            (RunError::from(DriverError::NoCublas).into(), 2),
            (RankError::from(DriverError::NoDriver).into(), 4),
            (no_model().into(), 5),
            (DeviceError::from(no_model()).into(), 5),
            (unwritten_model().into(), 1),
            (DeviceError::from(unwritten_model()).into(), 1),
            (RunError::from(unwritten_model()).into(), 1),
            (RunError::Unusable(String::new()).into(), 5),
            (refused(ErrorKind::StorageFull).into(), 1),
            (refused(ErrorKind::FileTooLarge).into(), 5),
            (CacheError::from(unwritten()).into(), 1),
            (CacheError::Gone(cache()).into(), 1),
            (CacheError::Rows { place: String::new(), error: unwritten() }.into(), 1),
            (CacheError::NotACache(cache()).into(), 2),
            (CacheError::Incomplete { path: cache(), sequences: 1 }.into(), 2),
            (CacheError::Format { path: cache(), format: 2 }.into(), 5),
            (CacheError::Damaged { path: cache(), what: String::new() }.into(), 5),
            (CacheError::DataChanged { path: cache(), lost: 1 }.into(), 5),
            (CacheError::Signature { path: cache(), error: SignatureError::Missing(cache()) }.into(), 5),
            (DeviceError::Unfit(String::new()).into(), 4),
            (failed().into(), 3),
            (DeviceError::from(failed()).into(), 3),
            (RunError::from(failed()).into(), 3),
            (RankError::from(stopped()).into(), 143),
            (DeviceError::from(stopped()).into(), 143),
            (DeviceError::from(RankError::from(stopped())).into(), 143),
        ];
        for (failure, code) in failures {
            assert_eq!(failure.exit_code(), code, "{failure:?}");
        }
    }

    #[test]
    fn another_ranks_failure_is_known_whichever_floor_passes_it() {
        for failure in [failed().into(), DeviceError::from(failed()).into(), RunError::from(failed()).into()] {
            assert!(matches!(failure, Failure::Rank(RankError::Failed { .. })), "{failure:?}");
        }
    }
}
