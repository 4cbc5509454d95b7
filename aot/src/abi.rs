//! The Rust that is generated of a program's C headers, compared with them by the program's tests.

use std::path::Path;

pub use precast_system::generated::Stale;
use precast_system::generated::{self, folders};

/// Compares what `precast-aot abi FOLDER --out FILE` wrote with the headers as they are and with its own digest. It
/// needs no libclang: a program's `#[test]` calls it with the arguments of that command.
///
/// # Errors
/// [`Stale`] with the command that regenerates the file.
pub fn check(folder: impl AsRef<Path>, file: impl AsRef<Path>) -> Result<(), Stale> {
    generated::check(&folders(folder.as_ref())?, file.as_ref())
}
