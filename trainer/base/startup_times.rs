//! Time from process start to the first step, by phase.

use std::time::Instant;

use serde::Serialize;

/// Phases of start-up with the time each took.
pub struct Startup {
    last: Instant,
    /// Seconds between the process's start and this value's.
    before_main_s: f64,
    phases: Vec<Phase>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    pub name: &'static str,
    pub seconds: f64,
}

/// Start-up times, in a record.
#[derive(Clone, Debug, Serialize)]
pub struct StartupRecord {
    /// All of it.
    pub total_s: f64,
    pub phases: Vec<Phase>,
}

impl Startup {
    /// Ends a phase; the next begins.
    pub fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.phases.push(Phase { name, seconds: (now - self.last).as_secs_f64() });
        self.last = now;
    }

    /// The phases, the process's own start first.
    pub fn phases(&self) -> Vec<Phase> {
        let first = Phase { name: "process", seconds: self.before_main_s };
        std::iter::once(first).chain(self.phases.iter().cloned()).collect()
    }

    /// Returns the times so far, seconds.
    pub fn record(&self) -> StartupRecord {
        StartupRecord { total_s: self.total_s(), phases: self.phases() }
    }

    /// Time since the process started, seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.total_s() + self.last.elapsed().as_secs_f64()
    }

    /// All of it.
    pub fn total_s(&self) -> f64 {
        self.phases().iter().map(|phase| phase.seconds).sum()
    }
}

impl Default for Startup {
    /// Starts the clock: the next phase begins now.
    fn default() -> Self {
        Self { last: Instant::now(), before_main_s: seconds_since_process_start().unwrap_or(0.0), phases: Vec::new() }
    }
}

/// From /proc: the system's uptime less the process's start time.
fn seconds_since_process_start() -> Option<f64> {
    let uptime: f64 = std::fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Field 22, counted after the command name, which may hold anything but ends with the last parenthesis.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    const TICKS_PER_SECOND: f64 = 100.0;
    Some((uptime - ticks / TICKS_PER_SECOND).max(0.0))
}
