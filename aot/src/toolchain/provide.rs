//! Provides the compiler of a build: the one that its environment names, else the pinned one, installed on first use.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::locate::{self, LocateError};
use super::pins;
use super::wheels::{self, WheelError};
use crate::assembler::{Assembler, AssemblerError};
use crate::nvrtc::Nvrtc;

/// Remedies for a build that may not or cannot download its compiler.
const REMEDIES: &str = "\
One of these gives it kernels:
  precast-aot toolchain install           on a machine with a network, and target/precast copied here
  PRECAST_NVRTC=/path/to/libnvrtc.so.13   a compiler that is here: the pinned kernels are NVRTC 13.0.88's
  PRECAST_FATBINS=fatbins/published       kernels that `precast-aot fetch` installed, and no compiler";

/// No compiler for a build.
#[derive(Debug, thiserror::Error)]
pub enum ProvideError {
    /// The named compiler is missing or does not work.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The assembler does not work.
    #[error(transparent)]
    Assembler(#[from] AssemblerError),
    /// Downloading is forbidden.
    #[error("the pinned compiler is not at {} and is not downloaded: {because}\n{REMEDIES}", path.display())]
    Offline {
        /// Path at which it would be installed.
        path: PathBuf,
        /// Reason for the ban.
        because: String,
    },
    /// The download or the installation fails.
    #[error("{0}\n{REMEDIES}")]
    Wheel(#[from] WheelError),
}

/// Variables that forbid a build to use the network.
pub const OFFLINE: [&str; 3] = ["PRECAST_OFFLINE", "CARGO_NET_OFFLINE", "DOCS_RS"];

/// Loads the compiler of a build. `announce` receives a notice before a download starts.
///
/// # Errors
/// [`ProvideError`] with the remedies.
pub fn provide(home: &Path, announce: impl FnOnce(&str)) -> Result<Nvrtc, ProvideError> {
    match locate::find(None, home, |name| std::env::var_os(name)) {
        Ok(path) => return Ok(Nvrtc::load(&path).map_err(LocateError::from)?),
        Err(looked) if looked.len() == 1 => return Err(LocateError::NotFound { looked }.into()),
        Err(_) => {}
    }
    allowed(locate::pinned(home))?;
    wheels::install(&pins::NVRTC, home, announce)?;
    Ok(Nvrtc::load(&locate::pinned(home)).map_err(LocateError::from)?)
}

/// Loads the assembler of a build that has PTX: the pinned one. `announce` receives a notice before a download starts.
///
/// # Errors
/// [`ProvideError`] with the remedies.
pub fn assembler(home: &Path, announce: impl FnOnce(&str)) -> Result<Assembler, ProvideError> {
    let path = pins::NVJITLINK.installed(home, pins::NVJITLINK.files[0]);
    if !path.is_file() {
        allowed(path.clone())?;
        wheels::install(&pins::NVJITLINK, home, announce)?;
    }
    Ok(Assembler::load(&path)?)
}

/// Refuses a download of what would be installed at a path, where the build must not use the network.
fn allowed(path: PathBuf) -> Result<(), ProvideError> {
    let cargo = std::fs::read(format!("/proc/{}/cmdline", std::os::unix::process::parent_id())).unwrap_or_default();
    let because = offline(|name| std::env::var_os(name), &cargo);
    because.map_or(Ok(()), |because| Err(ProvideError::Offline { path, because }))
}

/// Returns the reason that forbids a build the network. `cargo` is the NUL-separated command line of the process that
/// started the build script: cargo passes `--offline` on in no other way.
fn offline(variable: impl Fn(&str) -> Option<OsString>, cargo: &[u8]) -> Option<String> {
    let set = |name: &&&str| variable(name).is_some_and(|value| !["", "0", "false"].iter().any(|off| value == *off));
    if let Some(name) = OFFLINE.iter().find(set) {
        return Some(format!("{name} is set"));
    }
    let mut arguments = cargo.split(|byte| *byte == 0).take_while(|argument| *argument != b"--");
    let flag = arguments.find(|argument| [&b"--offline"[..], b"--frozen"].contains(argument))?;
    Some(format!("cargo was called with {}", String::from_utf8_lossy(flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_was_told_to_stay_offline_does() {
        let with = |name: &'static str, value: &'static str| offline(|n| (n == name).then(|| value.into()), b"");
        for name in OFFLINE {
            assert_eq!(with(name, "1"), Some(format!("{name} is set")));
            assert_eq!(with(name, "true"), Some(format!("{name} is set")));
            for off in ["", "0", "false"] {
                assert_eq!(with(name, off), None);
            }
        }
        let called = |line: &[u8]| offline(|_| None, line);
        assert_eq!(called(b"cargo\0build\0--features\0sm_121\0"), None);
        assert_eq!(called(b"cargo\0build\0--offline\0").as_deref(), Some("cargo was called with --offline"));
        assert_eq!(called(b"cargo\0--frozen\0build\0").as_deref(), Some("cargo was called with --frozen"));
        assert_eq!(called(b"cargo\0run\0--\0--offline\0"), None);
    }

    #[test]
    fn what_a_build_without_a_compiler_is_told() {
        let home = Path::new("target/precast");
        let offline = ProvideError::Offline { path: locate::pinned(home), because: "PRECAST_OFFLINE is set".into() };
        let pip = WheelError::Pip { package: "nvidia-cuda-nvrtc", version: "13.0.88", reason: "no network".into() };
        insta::assert_snapshot!(format!("{offline}\n\n{}", ProvideError::from(pip)));
    }
}
