//! Input and output of commands.

use std::path::{Path, PathBuf};

use precast_fatbins::{Bundle, BundleError};
use precast_system::terminal::tell;
use precast_system::{files, input, say};

use super::failure::Failure;

/// Size limit of a file that is read whole.
const MOST_BYTES: u64 = 4 << 30;

pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    input::read(path, MOST_BYTES).map_err(|error| Failure::Io { what: "read", path: path.to_owned(), error })
}

/// Reads the bundle that a person names.
pub(super) fn read_bundle(path: &Path) -> Result<Vec<u8>, Failure> {
    input::read(path, MOST_BYTES).map_err(|error| Failure::NoBundle { path: path.to_owned(), error })
}

/// Returns a bundle for inspection only. Checks impossible for other sources are listed on standard error.
///
/// # Errors
/// [`Failure::Bundle`] if any part of it is not as declared.
pub(super) fn examined<'b>(path: &Path, bundle: Result<Bundle<'b>, BundleError>) -> Result<Bundle<'b>, Failure> {
    let examined = bundle.and_then(|bundle| bundle.examine().map(|reason| (bundle, reason)));
    let (bundle, reason) = examined.map_err(|error| Failure::Bundle { path: path.to_owned(), error })?;
    if let Some(reason) = reason {
        tell(format_args!("note: {} is NOT VERIFIED: {reason}", path.display()));
        tell("Its digests hold, and so does what its cubins say of themselves; no program uses it.");
    }
    Ok(bundle)
}

/// Refuses to write over what is read: a file, or one in a directory.
pub(super) fn refuse_inputs<'a>(out: &Path, inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    let Ok(written) = out.canonicalize() else { return Ok(()) };
    let mut inputs = inputs.into_iter().filter_map(|input| input.canonicalize().ok());
    if inputs.any(|input| written.starts_with(&input) || input.starts_with(&written)) {
        return Err(Failure::Input(out.to_owned()));
    }
    Ok(())
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    files::write_whole(path, bytes).map_err(|error| Failure::Io { what: "write", path: path.to_owned(), error })
}

/// Describes machine code as both comparisons print it.
pub(super) fn code_json(code: &precast_fatbins::Code) -> serde_json::Value {
    serde_json::json!({
        "sha256": code.digest.to_string(),
        "bytes": code.bytes,
        "registers": code.registers,
        "static_shared_bytes": code.static_shared_bytes,
        "stack_bytes": code.stack_bytes,
    })
}

pub(super) fn print_json(value: &impl serde::Serialize) {
    say!("{}", serde_json::to_string_pretty(value).expect("plain data serializes"));
}
