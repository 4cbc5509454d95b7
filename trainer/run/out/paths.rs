//! Paths of output directories: where they lead, and whether anything lies there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use precast_system::files::{self, Existing, is_aside};

use super::owned::LOCK;
use crate::run::error::RunError;
use crate::run::record::RECORD;

/// An absolute path without links, of which the last part may not exist yet.
pub(super) fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The deepest part that exists, and the rest as it is spelled.
    let existing = absolute.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match existing {
        Some((part, real)) => match absolute.strip_prefix(part) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => absolute,
    }
}

/// Returns the path that a run is moved to when another replaces it.
pub(super) fn replaced(dir: &Path, number: u64) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(format!(".replaced-{number}"));
    name.into()
}

/// Refuses an output directory that an input lies in, or is.
///
/// # Errors
/// [`RunError::Unfit`].
pub fn refuse_inputs(dir: &Path, inputs: &[&Path]) -> Result<(), RunError> {
    match inputs.iter().find(|input| lies_in(input, dir)) {
        Some(input) => Err(RunError::Unfit(format!(
            "{} lies in --out {}: an input is never overwritten; choose another --out",
            input.display(),
            dir.display()
        ))),
        None => Ok(()),
    }
}

/// Refuses an output directory that lies in an input.
///
/// # Errors
/// [`RunError::Unfit`].
pub fn refuse_within(dir: &Path, inputs: &[&Path]) -> Result<(), RunError> {
    match inputs.iter().find(|input| lies_in(dir, input)) {
        Some(input) => Err(RunError::Unfit(format!(
            "--out {} lies in {}, which is read: choose another --out",
            dir.display(),
            input.display()
        ))),
        None => Ok(()),
    }
}

/// True if a path is a directory or lies in it.
pub(super) fn lies_in(input: &Path, dir: &Path) -> bool {
    let path = resolved(dir);
    // As it is spelled too: a link in the directory is replaced with it, wherever it leads.
    let spelled = std::path::absolute(input).unwrap_or_else(|_| input.to_path_buf());
    let spelled = match (spelled.parent(), spelled.file_name()) {
        (Some(parent), Some(name)) => resolved(parent).join(name),
        _ => spelled,
    };
    resolved(input).starts_with(&path) || spelled.starts_with(&path)
}

/// Returns one name in a directory besides locks and leftovers.
fn first_name(dir: &Path) -> Result<Option<String>, RunError> {
    let entries = fs::read_dir(dir).map_err(RunError::directory("read", dir))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name != LOCK && !is_aside(name)).min())
}

pub(super) fn is_empty(dir: &Path) -> Result<bool, RunError> {
    Ok(first_name(dir)?.is_none())
}

pub(super) fn refuse_contents(dir: &Path) -> Result<(), RunError> {
    match first_name(dir)? {
        Some(_) if !dir.join(RECORD).exists() => Err(not_a_run(dir)),
        Some(holds) => Err(RunError::Unfit(format!(
            "{} is not empty (it holds {holds}): --resume continues the run in it, --overwrite replaces it; or \
            choose another --out",
            dir.display()
        ))),
        None => Ok(()),
    }
}

/// Refuses a directory that is not empty and holds no run.
pub(super) fn not_a_run(dir: &Path) -> RunError {
    let holds = first_name(dir).ok().flatten().map(|name| format!(" (it holds {name})")).unwrap_or_default();
    RunError::Unfit(format!(
        "{} is not empty{holds} and is not a run's directory, which has {RECORD}: choose another --out",
        dir.display()
    ))
}

/// Puts back a run whose replacement was killed between the two renames. True if it did.
pub(super) fn put_back(dir: &Path) -> io::Result<bool> {
    if !dir.parent().is_some_and(Path::is_dir) || files::asides(dir)?.is_empty() {
        return Ok(false);
    }
    let replaced = (1..).map(|number| replaced(dir, number)).take_while(|path| path.is_dir());
    match replaced.last() {
        Some(last) if last.join(RECORD).exists() => files::rename(&last, dir).map(|()| true),
        _ => Ok(false),
    }
}

/// Refuses to write a directory of files where an input lies, or over one that Precast did not write whole. Returns
/// where it leads.
///
/// # Errors
/// [`RunError`].
pub fn check_directory(dir: &Path, existing: Existing, inputs: &[&Path]) -> Result<PathBuf, RunError> {
    refuse_inputs(dir, inputs)?;
    let dir = resolved(dir);
    match fs::symlink_metadata(&dir) {
        Err(_) => return Ok(dir),
        Ok(metadata) if !metadata.is_dir() => return Err(RunError::no_directory(&dir)),
        Ok(_) => {}
    }
    if existing == Existing::Keep {
        refuse_everything(&dir)?;
    }
    files::check_replaceable(&dir).map_err(RunError::not_ours)?;
    Ok(dir)
}

/// Refuses to write a file where something is already.
///
/// # Errors
/// [`RunError::Unfit`].
pub fn check_file(path: &Path) -> Result<(), RunError> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(_) => Err(RunError::Unfit(format!(
            "--out {} is there already, and nothing is replaced: remove it, or choose another --out",
            path.display()
        ))),
    }
}

fn refuse_everything(dir: &Path) -> Result<(), RunError> {
    let entries = fs::read_dir(dir).map_err(RunError::directory("read", dir))?;
    match entries.flatten().map(|entry| entry.file_name()).min() {
        Some(holds) => Err(RunError::Unfit(format!(
            "{} is not empty (it holds {}): --overwrite replaces what Precast wrote; or choose another --out",
            dir.display(),
            holds.to_string_lossy()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_inside_are_refused_however_they_are_spelled() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["out/model", "elsewhere"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        std::os::unix::fs::symlink(path("out"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("elsewhere"), path("out/alias")).unwrap();
        let refused = |out: &str, input: &str| refuse_inputs(&path(out), &[&path(input)]).is_err();
        assert!(refused("out", "out/model") && refused("out", "out") && refused("link", "out/model"));
        assert!(refused("out", "link/model") && refused("out/", "link/../out/model") && refused("out", "out/alias"));
        let within = |out: &str, input: &str| refuse_within(&path(out), &[&path(input)]).is_err();
        assert!(within("out/new", "out") && within("link/new", "out") && within("out/new/new", "link"));
        assert!(!within("out", "elsewhere") && !within("out", "out/model"));
        assert!(!refused("out", "elsewhere") && !refused("out/model/run", "out/model") && !refused("out", "out2"));
    }
}
