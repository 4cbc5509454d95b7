//! Writes the Rust of headers.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use precast_core::shell::quoted;
use precast_system::generated;

use crate::{emit, headers, libclang};

/// Runs this program again, with the variable that says where libclang is. Returns `None` where the variable says so
/// already, and this process may call [`generate`]: it cannot set its own.
///
/// # Errors
/// A program that cannot be started.
pub fn again(libclang: &Path) -> io::Result<Option<ExitStatus>> {
    if std::env::var_os(libclang::VARIABLE).is_some_and(|named| Path::new(&named) == libclang) {
        return Ok(None);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(libclang::VARIABLE, libclang).status().map(Some)
}

/// Writes the Rust of a folder's headers, and of those in its folders, to a file of the module that has the types of
/// its keys. Returns false where the file is as it was.
///
/// # Errors
/// Those of [`generate`], and a file that cannot be written.
pub fn write(folder: &Path, out: &Path) -> Result<bool> {
    // Where a checkout lies is nobody's business.
    let here = std::env::current_dir()?;
    let [of, to] = [folder, out].map(|path| path.strip_prefix(&here).unwrap_or(path).display().to_string());
    let command = format!("precast-aot abi {} --out {}", quoted(&of), quoted(&to));
    put(out, &generate(&generated::folders(folder)?, &format!("`{of}`"), &command)?)
}

/// Writes a file that is not as it is to be. Returns false where it is.
///
/// # Errors
/// A file that cannot be written.
pub fn put(out: &Path, text: &str) -> Result<bool> {
    let differs = std::fs::read_to_string(out).ok().is_none_or(|committed| committed != text);
    if differs {
        std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(differs)
}

/// Returns the Rust of all headers of some folders. Its head says `of` what it is, in words, and which `command`
/// regenerates it.
///
/// # Errors
/// No libclang, a header that does not parse, a comment that does not declare a kernel or an operand, two
/// kernels of one name, or a struct with bytes that belong to no field, which would be uninitialized in what is
/// launched; each with its file and line.
pub fn generate(folders: &[PathBuf], of: &str, command: &str) -> Result<String> {
    let files = generated::headers(folders)?;
    let scratch = tempfile::tempdir()?;
    let body = emit::body(&headers::read(&files, scratch.path())?)?;
    let what = format!("Parameter blocks and kernels, of the C headers of {of}.");
    Ok(generated::head(&what, command, &generated::digest(&files).to_string(), &body))
}
