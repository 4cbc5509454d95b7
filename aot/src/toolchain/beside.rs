//! Finds the NVRTC of NVIDIA's package in the Python environment that a program was installed into:
//! `ENV/lib/python3.12/site-packages/nvidia/cu13/lib` beside `ENV/bin/precast-aot`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_system::input;

use super::pins::{LIBRARIES, NVRTC, Pin};

/// An environment's NVRTC that is not the pinned one.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    /// The package has another version.
    #[error(
        "{} belongs to {} {found}, and kernels are locked as {} compiles them: not used\n{}",
        path.display(), NVRTC.package, NVRTC.version, remedies()
    )]
    Version {
        /// The library.
        path: PathBuf,
        /// Version of the package.
        found: String,
    },
    /// A file has another digest.
    #[error("{} has SHA-256 {found}, that of {} {} is {expected}: not used\n{}",
        path.display(), NVRTC.package, NVRTC.version, remedies()
    )]
    Digest {
        /// The file.
        path: PathBuf,
        /// Pinned SHA-256.
        expected: &'static str,
        /// SHA-256 of the file.
        found: Digest,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {error}\n{}", path.display(), remedies())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

/// Lists the ways to a compiler for a program that pip or uv installed.
fn remedies() -> String {
    let Pin { package, version, .. } = NVRTC;
    let reinstall = format!("pip install --force-reinstall {package}=={version}");
    let ways = [
        (&*reinstall, "the pinned one, into this environment; of uv: uv pip install --reinstall"),
        ("precast-aot toolchain install", "the pinned one from PyPI, for precast-aot alone"),
        ("PRECAST_NVRTC=/path/to/libnvrtc.so.13", "a compiler that is here"),
    ];
    let lines = ways.map(|(way, what)| format!("\n  {way:<55} {what}"));
    format!("One of these gives precast-aot its compiler:{}", lines.concat())
}

/// Size limit of a library, bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Returns the package directories of the environment around a program; none if it lies in no Python environment.
pub(super) fn packages(program: &Path) -> Vec<PathBuf> {
    let bin = program.parent().filter(|directory| directory.ends_with("bin"));
    let Some(environment) = bin.and_then(Path::parent) else { return Vec::new() };
    // Often one is a link to the other.
    let libs = ["lib", "lib64"].map(|lib| environment.join(lib)).into_iter().filter(|lib| !lib.is_symlink());
    let pythons = libs.flat_map(|lib| entries(&lib, "python3."));
    // Debian's own Python has another name for them.
    let packages = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    packages.filter(|directory| directory.is_dir()).collect()
}

/// Returns the first pinned NVRTC of package directories; none if no directory has any.
///
/// # Errors
/// [`BesideError`] if all that are there are others.
pub(super) fn find(packages: &[PathBuf]) -> Result<Option<PathBuf>, BesideError> {
    let own = LIBRARIES.iter().find(|(machine, _)| *machine == std::env::consts::ARCH);
    let mut refused = None;
    for (packages, (_, digests)) in packages.iter().zip(own.into_iter().cycle()) {
        if packages.join(NVRTC.files[0]).exists() {
            match checked(packages, digests) {
                Ok(library) => return Ok(Some(library)),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Checks version and digests of the package in a directory; returns its library.
fn checked(packages: &Path, digests: &[&'static str; 2]) -> Result<PathBuf, BesideError> {
    let library = packages.join(NVRTC.files[0]);
    let name = format!("{}-", NVRTC.package.replace('-', "_"));
    let mut versions = entries(packages, &name).into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_prefix(&*name)?;
        name.strip_suffix(".dist-info").map(str::to_owned)
    });
    if let Some(found) = versions.next_back().filter(|version| version != NVRTC.version) {
        return Err(BesideError::Version { path: library, found });
    }
    for (file, expected) in NVRTC.files.iter().zip(digests) {
        let path = packages.join(file);
        match input::read(&path, MOST_BYTES).map(|bytes| Digest::of(&bytes)) {
            Ok(found) if found.to_string() == *expected => {}
            Ok(found) => return Err(BesideError::Digest { path, expected, found }),
            Err(error) => return Err(BesideError::Read { path, error }),
        }
    }
    Ok(library)
}

/// Returns the entries of a directory with a prefix, sorted; none if it cannot be read.
fn entries(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut named: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    named.sort();
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an environment whose libraries hold these bytes; returns its program and package directory.
    fn environment(version: &str, libraries: [&[u8]; 2]) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let environment = tempfile::tempdir().unwrap();
        let packages = environment.path().join("lib/python3.12/site-packages");
        fs::create_dir_all(packages.join(format!("nvidia_cuda_nvrtc-{version}.dist-info"))).unwrap();
        for (file, bytes) in NVRTC.files.iter().zip(libraries) {
            let path = packages.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let program = environment.path().join("bin/precast-aot");
        (environment, program, packages)
    }

    #[test]
    fn an_environment_is_the_one_around_its_bin() {
        let (environment, program, packages) = environment("13.0.88", [b"", b""]);
        std::os::unix::fs::symlink("lib", environment.path().join("lib64")).unwrap();
        assert_eq!(super::packages(&program), [packages]);
        let elsewhere = environment.path().join("release/precast-aot");
        assert!(super::packages(&elsewhere).is_empty());
        let debian = environment.path().join("lib/python3.9/dist-packages");
        fs::create_dir_all(&debian).unwrap();
        assert!(super::packages(&program).contains(&debian));
    }

    #[test]
    fn a_byte_of_either_library_makes_it_another() {
        let digests = [b"a", b"b"].map(|bytes| &*Digest::of(bytes).to_string().leak());
        let found = |version, libraries| {
            let (_environment, _, packages) = environment(version, libraries);
            checked(&packages, &digests).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(found("13.0.88", [b"a", b"b"]), Ok(()));
        for (libraries, name) in [([b"A", b"b"], "libnvrtc.so.13 has"), ([b"a", b"B"], "builtins.so.13.0 has")] {
            let said = found("13.0.88", libraries.map(|bytes: &[u8; 1]| &bytes[..])).unwrap_err();
            assert!(said.contains(name) && said.contains("nvidia-cuda-nvrtc==13.0.88"), "{said}");
        }
        let said = found("13.0.48", [b"a", b"b"]).unwrap_err();
        assert!(said.contains("belongs to nvidia-cuda-nvrtc 13.0.48, and kernels are locked as 13.0.88"), "{said}");
    }
}
