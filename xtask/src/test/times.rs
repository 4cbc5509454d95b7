//! Prints and keeps the time of `cargo xtask test`: seconds of each step and test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::run;

/// Number of slowest tests printed.
const SLOWEST: usize = 20;

/// Seconds of everything that has ended, in order.
#[derive(Serialize)]
pub struct Times {
    /// File rewritten after each step.
    #[serde(skip)]
    path: PathBuf,
    steps: Vec<Timed>,
    tests: Vec<Timed>,
}

/// A step, or a test with its program.
#[derive(Serialize)]
pub struct Timed {
    pub name: String,
    pub seconds: f64,
}

impl Times {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), steps: Vec::new(), tests: Vec::new() }
    }

    /// Runs a command that must succeed, as a step.
    pub fn run(&mut self, what: &str, command: &mut Command) -> Result<()> {
        self.step(what, |_| run::step(what, command))
    }

    /// Times a step, also a failing one.
    pub fn step<T>(&mut self, what: &str, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = work(self);
        self.steps.push(Timed { name: what.to_owned(), seconds: started.elapsed().as_secs_f64() });
        let written = self.write();
        // The step's failure matters more than one to write its time.
        let value = result?;
        written.map(|()| value)
    }

    /// Adds a program's tests.
    pub fn add(&mut self, tests: impl IntoIterator<Item = Timed>) {
        self.tests.extend(tests);
    }

    fn write(&self) -> Result<()> {
        let path = &self.path;
        fs::create_dir_all(path.parent().unwrap_or(path)).with_context(|| path.display().to_string())?;
        fs::write(path, serde_json::to_string_pretty(self)? + "\n").with_context(|| path.display().to_string())
    }

    /// Prints every step and the slowest tests.
    pub fn print(&self) {
        print!("{}", self.table());
        println!("{} has all {} tests", self.path.display(), self.tests.len());
    }

    fn table(&self) -> String {
        let mut slowest: Vec<&Timed> = self.tests.iter().collect();
        slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let total = Timed { name: "all steps".to_owned(), seconds: self.steps.iter().map(|step| step.seconds).sum() };
        let row = |it: &Timed| format!("{:>8.1}  {}\n", it.seconds, it.name);
        let steps: String = self.steps.iter().chain([&total]).map(row).collect();
        let tests: String = slowest.into_iter().take(SLOWEST).map(row).collect();
        format!("\n== seconds of each step\n{steps}\n== seconds of the slowest tests\n{tests}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(name: &str, seconds: f64) -> Timed {
        Timed { name: name.to_owned(), seconds }
    }

    #[test]
    fn steps_come_in_order_and_tests_by_their_time() {
        let steps = vec![timed("format", 1.5), timed("clippy", 60.0)];
        let tests = (0..30).map(|n| timed(&format!("test {n}"), f64::from(n))).collect();
        let table = Times { path: PathBuf::new(), steps, tests }.table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[1..5],
            ["== seconds of each step", "     1.5  format", "    60.0  clippy", "    61.5  all steps"]
        );
        assert_eq!((lines[7], lines.len()), ("    29.0  test 29", 7 + SLOWEST));
    }

    #[test]
    fn a_step_that_fails_is_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ci/times.json");
        let mut times = Times::new(&path);
        assert_eq!(times.step("format", |_| Ok(7)).unwrap(), 7);
        let failure = times.step("clippy", |_| anyhow::bail!("a lint")).map(|()| 0).unwrap_err();
        assert_eq!(failure.to_string(), "a lint");
        let written: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let names: Vec<_> = written["steps"].as_array().unwrap().iter().map(|step| step["name"].clone()).collect();
        assert_eq!(names, ["format", "clippy"]);
        // A full disk hides no failure.
        let mut nowhere = Times::new("/dev/null/times.json");
        assert_eq!(nowhere.step("clippy", |_| anyhow::bail!("a lint")).map(|()| 0).unwrap_err().to_string(), "a lint");
        assert!(nowhere.step("format", |_| Ok(())).is_err());
    }
}
