//! Failed commands, and the exit code of each.

use std::path::PathBuf;

use precast_abi::libclang::VARIABLE;
use precast_aot::lock::{LockFileError, NotLocked};
use precast_aot::publish::{LayoutError, PublishError};
use precast_aot::toolchain::LocateError;
use precast_fatbins::{BundleError, SignatureError};
use precast_models::ModelError;
use precast_models::kernels::UnknownKernel;
use precast_system::files;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Kernel(#[from] UnknownKernel),
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Build(#[from] precast_aot::BuildError),
    #[error(transparent)]
    Wheel(#[from] precast_aot::toolchain::wheels::WheelError),
    #[error(transparent)]
    Lock(#[from] LockFileError),
    /// Kernels differ from the locked ones.
    #[error(transparent)]
    NotLocked(#[from] NotLocked),
    /// A lock file is missing.
    #[error("no lock {}: {command} writes it", path.display())]
    NoLock {
        /// Path at which no file is.
        path: PathBuf,
        /// Command that writes it.
        command: String,
    },
    /// A bundle cannot be published, or a published one must not be used.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A secret key cannot be read or opened.
    #[error("cannot sign: {0}")]
    Key(String),
    /// A trusted key does not parse.
    #[error(transparent)]
    TrustedKey(#[from] SignatureError),
    #[error("cannot start compiler threads: {0}")]
    Threads(String),
    /// A bundle must not be used.
    #[error("{}: {error}", path.display())]
    Bundle { path: PathBuf, error: BundleError },
    /// A named bundle cannot be read.
    #[error("cannot read the bundle {}: {error}\nprecast-aot build --out FILE makes one", path.display())]
    NoBundle { path: PathBuf, error: std::io::Error },
    /// Two bundles hold different machine code.
    #[error("{0} kernels have no kernel with the same machine code in the other bundle")]
    OtherCode(usize),
    /// A file of evidence must not be used.
    #[error("{}: {reason}", path.display())]
    Evidence {
        path: PathBuf,
        /// Fault of the file, for people.
        reason: String,
    },
    /// The output file exists already.
    #[error("--out {} is there already: name another file", .0.display())]
    Exists(PathBuf),
    /// An output file is an input, too.
    #[error("{} would be overwritten, and it is read: name another file to write", .0.display())]
    Input(PathBuf),
    /// Two files of evidence have nothing to compare.
    #[error("they cannot be compared: {0}")]
    Incomparable(String),
    /// Two chips disagree.
    #[error("the chips disagree on {0} of what both computed")]
    Apart(usize),
    /// Files with gaps show no agreement.
    #[error(
        "the chips agree on what both files hold, and {0} of what a chip computes is in neither or in one alone: \
        take the evidence \
         whole, with `precast evidence --out FILE`"
    )]
    Missing(usize),
    /// Headers declare no kernels, or the Rust of them cannot be written.
    #[error("{0}")]
    Headers(String),
    /// The folder that a variable names has no libclang.
    #[error("{VARIABLE} is {}, which has no libclang: unset it, and the pinned one is installed", .0.display())]
    Libclang(PathBuf),
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(String),
    #[error("cannot {what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: std::io::Error },
}

impl Failure {
    /// Returns 2 for usage, 3 for bundles and kernels, 5 for models, evidence and files at their size limit, 1 for the
    /// rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Io { error, .. } | Failure::Publish(PublishError::Layout(LayoutError::Io { error, .. }))
                if files::is_past_limit(error) =>
            {
                5
            }
            Failure::Bundle { .. }
            | Failure::NoBundle { .. }
            | Failure::Build(_)
            | Failure::NotLocked(_)
            | Failure::NoLock { .. } => 3,
            Failure::Publish(PublishError::Layout(LayoutError::Io { .. })) => 1,
            Failure::Publish(PublishError::Layout(LayoutError::NotOurs { .. })) => 2,
            Failure::Lock(_) | Failure::Publish(_) => 3,
            Failure::TrustedKey(_)
            | Failure::Kernel(_)
            | Failure::Exists(_)
            | Failure::Input(_)
            | Failure::Libclang(_) => 2,
            Failure::Headers(_)
            | Failure::Model(_)
            | Failure::Evidence { .. }
            | Failure::Incomparable(_)
            | Failure::Missing(_) => 5,
            Failure::OtherCode(_)
            | Failure::Apart(_)
            | Failure::Locate(_)
            | Failure::Wheel(_)
            | Failure::Threads(_)
            | Failure::Key(_)
            | Failure::Output(_)
            | Failure::Io { .. } => 1,
        }
    }
}
