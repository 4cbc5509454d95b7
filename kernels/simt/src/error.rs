//! Why a kernel cannot be prepared.

use std::path::Path;

/// The first g++ with `-ftrivial-auto-var-init`.
pub(crate) const OLDEST: u32 = 12;

/// Static shared memory a CTA may have (PTX ISA, "State Spaces").
pub(crate) const STATIC_SHARED_BYTES: u64 = 48 << 10;

/// A kernel that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// There is no compiler.
    #[error("g++ is not installed: it compiles kernels for the host (Debian: apt-get install g++)")]
    NoCompiler,
    /// The g++ that is installed is older than 12: it lacks `-ftrivial-auto-var-init`.
    #[error(
        "g++ {0} is too old to compile kernels for the host, which takes g++ {OLDEST} (Debian 12: apt-get install g++)"
    )]
    TooOld(String),
    /// The compiler refuses.
    #[error("{what} does not compile for the host\n{log}")]
    Refused {
        /// Name of the source.
        what: String,
        /// Messages of the compiler.
        log: String,
    },
    /// A plain kernel that no host compiler reads, or that has no name by which it is called.
    #[error("`{kernel}` of {file} cannot be executed on the host: {why}")]
    Plain {
        /// Name of the kernel.
        kernel: &'static str,
        /// The file.
        file: &'static str,
        /// Reason, and remedy.
        why: &'static str,
    },
    /// Files cannot be written or read.
    #[error("{what}: {error}")]
    Io {
        /// Action and file.
        what: String,
        /// Reason, for people.
        error: std::io::Error,
    },
    /// A compiled library cannot be loaded.
    #[error("{what} cannot be loaded: {why}")]
    Load {
        /// Name of the source.
        what: String,
        /// Reason, for people.
        why: String,
    },
    /// More static shared memory than an architecture allows.
    #[error("{what}: {bytes} bytes of static shared memory; {} are allowed", STATIC_SHARED_BYTES)]
    StaticShared {
        /// Name of the source.
        what: String,
        /// Bytes of all static variables.
        bytes: u64,
    },
}

pub(crate) fn io(what: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> CompileError {
    move |error| CompileError::Io { what: what.as_ref().display().to_string(), error }
}
