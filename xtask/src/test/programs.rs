//! Test programs: built by one call of cargo, run in the order that fails earliest, with each test timed.

use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::times::Timed;
use crate::run::cargo;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// Its package's directory, in which cargo runs it.
    directory: PathBuf,
    /// Name of its target.
    pub name: String,
    executable: PathBuf,
}

/// Builds the test programs of packages, and the programs that whole-program tests run.
pub fn build(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Vec<Program>> {
    let mut command = cargo(&["test", "--no-run", "--message-format", "json-render-diagnostics"]);
    let mut build = command
        .args(arguments)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let messages = BufReader::new(build.stdout.take().context("cargo's messages")?);
    let mut programs: Vec<Program> = Vec::new();
    for line in messages.lines() {
        programs.extend(Program::of(&line?));
    }
    let status = build.wait()?;
    ensure!(status.success(), "cargo test --no-run ended with {status}");
    ensure!(!programs.is_empty(), "cargo built no tests");
    Ok(programs)
}

impl Program {
    /// Parses a cargo message; none unless it reports a built test program.
    fn of(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        let executable = message["profile"]["test"].as_bool()?.then_some(&message["executable"])?.as_str()?.into();
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        Some(Self { directory, name: message["target"]["name"].as_str()?.to_owned(), executable })
    }

    /// Runs its tests, which must pass, and returns each test's time.
    pub fn run(&self, environment: &[(&str, &Path)]) -> Result<Vec<Timed>> {
        println!("\n== {}: {}", self.name, self.executable.display());
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory).env("INSTA_UPDATE", "no");
        command.envs(environment.iter().copied());
        // Tests wait for programs and clocks: one more than the cores keeps these busy.
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        command.env("RUST_TEST_THREADS", (cores + 1).to_string());
        // libtest reports times only under a nightly option.
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Z", "unstable-options", "--report-time"]);
        let mut running =
            command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {}", self.name))?;
        let printed = BufReader::new(running.stdout.take().context("a test program's output")?);
        let mut times = Vec::new();
        for line in printed.lines() {
            let line = line?;
            writeln!(std::io::stdout(), "{line}")?;
            times.extend(timed(&line).map(|(name, seconds)| Timed { name: format!("{}: {name}", self.name), seconds }));
        }
        let status = running.wait()?;
        ensure!(status.success(), "tests of {} ended with {status}", self.name);
        Ok(times)
    }
}

/// Parses a test's name and seconds: `test name ... ok <1.234s>`.
fn timed(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = rest.rsplit_once('<')?.1.strip_suffix("s>")?.parse().ok()?;
    Some((name, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_what_libtest_prints() {
        assert_eq!(timed("test a::b ... ok <1.250s>"), Some(("a::b", 1.25)));
        assert_eq!(timed("test a - should panic ... FAILED <0.000s>"), Some(("a - should panic", 0.0)));
        for line in ["running 2 tests", "test a ... ignored", "test result: ok. 1 passed; finished in 0.01s", ""] {
            assert_eq!(timed(line), None, "{line}");
        }
    }

    #[test]
    fn programs_are_the_tests_that_cargo_has_built() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","target":{{"name":"t"}},
                    "profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let expected = Program { directory: "/p".into(), name: "t".into(), executable: "/x".into() };
        assert_eq!(Program::of(&message(true, r#""/x""#)), Some(expected));
        assert_eq!(Program::of(&message(false, r#""/x""#)), None);
        assert_eq!(Program::of(&message(true, "null")), None);
        assert_eq!(Program::of(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
