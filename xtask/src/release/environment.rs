//! Lets a build of a release see where things are, and nothing else of the environment that it is called in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Target folder of releases.
const TARGET: &str = "target/portable";

/// Variables that a build sees: where things are, and how many processes it may start.
const KEPT: [&str; 7] = ["CARGO_BUILD_JOBS", "CARGO_HOME", "HOME", "PATH", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "TMPDIR"];

/// Variables that would make other kernels than the locked ones of the pinned compiler.
const REFUSED: [&str; 6] =
    ["PRECAST_BUILT_IN", "PRECAST_FATBINS", "PRECAST_LOCK", "PRECAST_MODELS", "PRECAST_NVRTC", "PRECAST_UNLOCKED"];

/// Refuses an environment that asks for other kernels.
pub fn check() -> Result<()> {
    check_variables(|name| std::env::var_os(name))
}

fn check_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<()> {
    let set = REFUSED.into_iter().find(|name| variable(name).is_some_and(|value| !value.is_empty()));
    let name = set.unwrap_or_default();
    ensure!(set.is_none(), "{name} is set, and a release has the locked kernels of the pinned NVRTC: unset {name}");
    Ok(())
}

/// Returns cargo's home, which it takes from a variable or else from the user's.
pub fn cargo_home() -> Result<PathBuf> {
    match std::env::var_os("CARGO_HOME") {
        Some(home) => Ok(PathBuf::from(home)),
        None => Ok(PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cargo")),
    }
}

/// Returns a command that sees [`KEPT`] and nothing else of this process's environment.
pub fn clean(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command.env_clear().envs(KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
}

/// Target folder of releases of a checkout.
pub fn folder(checkout: &Path) -> PathBuf {
    checkout.join(TARGET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::output;

    #[test]
    fn a_build_sees_nothing_of_its_environment_but_where_things_are() {
        let seen = output(clean("env").env("OWN", "1")).unwrap();
        let seen: Vec<&str> = seen.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert!(seen.contains(&"PATH") && seen.contains(&"OWN"), "{seen:?}");
        let beyond: Vec<&&str> = seen.iter().filter(|name| **name != "OWN" && !KEPT.contains(name)).collect();
        // Cargo sets many variables of a test.
        assert!(beyond.is_empty() && std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "{beyond:?}");
    }

    #[test]
    fn an_environment_that_asks_for_other_kernels_is_refused() {
        let with = |set: &'static str, value: &'static str| {
            check_variables(|name| (name == set).then(|| value.into())).map_err(|error| error.to_string())
        };
        for name in REFUSED {
            assert!(with(name, "1").unwrap_err().starts_with(name));
            with(name, "").unwrap();
        }
        // A toolkit is not looked for.
        with("CUDA_HOME", "/usr/local/cuda").unwrap();
    }
}
