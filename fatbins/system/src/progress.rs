//! Progress of long work: a bar where somebody watches, else a line every 30 seconds.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::terminal::tell;

/// Time between lines.
const EVERY: Duration = Duration::from_secs(30);
/// Seconds between lines in tests of whole programs.
const VARIABLE: &str = "PRECAST_PROGRESS_S";

/// All bars, so that one drawn while another is there stands below it.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

static SILENT: AtomicBool = AtomicBool::new(false);

/// Shows no more progress in this process: another one shows the same.
pub fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Times at which a line is due.
#[derive(Debug)]
pub struct Pace {
    every: Duration,
    last: Instant,
}

impl Pace {
    /// Begins now, with a line every 30 seconds.
    pub fn start() -> Self {
        let seconds = std::env::var(VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
        Self::new(seconds.map_or(EVERY, Duration::from_secs), Instant::now())
    }

    fn new(every: Duration, start: Instant) -> Self {
        Self { every, last: start }
    }

    /// True if the time since the last line, or since the start, has passed. Then there is one.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.last) >= self.every;
        if is_due {
            self.last = now;
        }
        is_due
    }

    /// There is a line for another reason.
    pub fn line(&mut self, now: Instant) {
        self.last = now;
    }
}

/// Unit in which work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, printed in binary units.
    Bytes,
    /// Things of this name, in the plural.
    Things(&'static str),
}

/// Lines on work.
#[derive(Debug)]
struct Lines {
    what: &'static str,
    start: Instant,
    pace: Pace,
}

impl Lines {
    fn start(what: &'static str) -> Self {
        Self { what, start: Instant::now(), pace: Pace::start() }
    }

    /// Returns the line that is due, with how far the work is if that is known.
    fn at(&mut self, now: Instant, done: Option<(u64, u64, Unit)>) -> Option<String> {
        let seconds = now.saturating_duration_since(self.start).as_secs();
        let what = self.what;
        self.pace.is_due(now).then(|| match done {
            None => format!("{what}: {seconds} s so far"),
            Some((done, all, unit)) => {
                let percent = 100 * u128::from(done) / u128::from(all.max(1));
                format!("{what}: {} ({percent} %) after {seconds} s", unit.of(done, all))
            }
        })
    }
}

impl Unit {
    fn of(self, done: u64, all: u64) -> String {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        match self {
            Self::Bytes => format!("{:.2} of {:.2} GiB", gib(done), gib(all)),
            Self::Things(name) => format!("{done} of {all} {name}"),
        }
    }
}

/// Progress of work that is counted.
pub struct Progress {
    unit: Unit,
    shown: Shown,
}

enum Shown {
    Bar(Bar),
    /// Lines, and what is done of how much.
    Lines(Mutex<(Lines, u64, u64)>),
    Nothing,
}

impl Progress {
    /// Begins work of this name; standard error is where it is shown.
    pub fn start(what: &'static str, unit: Unit) -> Self {
        let shown = if SILENT.load(Ordering::Relaxed) {
            Shown::Nothing
        } else if io::stderr().is_terminal() {
            Shown::Bar(Bar::new(&match unit {
                Unit::Bytes => format!("{what} {{bar:30}} {{bytes}}/{{total_bytes}} {{bytes_per_sec}}"),
                Unit::Things(name) => format!("{{bar:30}} {{pos}}/{{len}} {name}  {{elapsed}}"),
            }))
        } else {
            Shown::Lines(Mutex::new((Lines::start(what), 0, 0)))
        };
        Self { unit, shown }
    }

    /// So much of all of the work is done. Threads may say it in any order.
    pub fn set(&self, done: u64, all: u64) {
        self.update(|was, _| (done.max(was), all));
    }

    /// So much more of it is done.
    pub fn add(&self, more: u64, all: u64) {
        self.update(|was, _| (was + more, all));
    }

    fn update(&self, change: impl FnOnce(u64, u64) -> (u64, u64)) {
        match &self.shown {
            Shown::Bar(bar) => {
                let (done, all) = change(bar.0.position(), bar.0.length().unwrap_or_default());
                bar.set(done, all);
            }
            Shown::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                let (done, all) = change(lines.1, lines.2);
                (lines.1, lines.2) = (done, all);
                lines.0.at(Instant::now(), Some((done, all, self.unit))).into_iter().for_each(tell);
            }
            Shown::Nothing => {}
        }
    }

    /// Does something that prints.
    pub fn suspend<R>(&self, work: impl FnOnce() -> R) -> R {
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(work),
            Shown::Lines(_) | Shown::Nothing => work(),
        }
    }
}

/// A wait whose end nobody knows: a line every 30 seconds, on a terminal too.
pub struct Wait(Lines);

impl Wait {
    /// Begins to wait for work of this name.
    pub fn start(what: &'static str) -> Self {
        Self(Lines::start(what))
    }

    /// It is not over.
    pub fn goes_on(&mut self) {
        if !SILENT.load(Ordering::Relaxed) {
            self.0.at(Instant::now(), None).into_iter().for_each(tell);
        }
    }
}

/// A bar on standard error, which goes when it is dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// Draws a bar by a template of indicatif's.
    ///
    /// # Panics
    /// If it is none.
    pub fn new(template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("a valid template");
        Self(BARS.add(ProgressBar::new(0)).with_style(style))
    }

    /// Begins where so much of all is done.
    #[must_use]
    pub fn from(self, done: u64, all: u64) -> Self {
        self.set(done, all);
        self.0.reset_eta();
        self
    }

    /// Shows that `done` of `all` units are done.
    pub fn set(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }

    /// Shows a text beside it.
    pub fn message(&self, text: String) {
        self.0.set_message(text);
    }

    /// Does something that prints.
    pub fn suspend<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.suspend(work)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(what: &'static str, start: Instant) -> Lines {
        Lines { what, start, pace: Pace::new(EVERY, start) }
    }

    #[test]
    fn a_line_comes_every_30_seconds_and_no_sooner() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::new(EVERY, start);
        let due = [0, 29, 30, 31, 59, 60, 200, 229, 230].map(|seconds| pace.is_due(at(seconds)));
        assert_eq!(due, [false, false, true, false, false, true, true, false, true]);
        // A line for another reason puts off the next one.
        pace.line(at(250));
        assert_eq!([279, 280].map(|seconds| pace.is_due(at(seconds))), [false, true]);
    }

    #[test]
    fn lines_say_how_far_the_work_is() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut counted, mut sent, mut waited) =
            (lines("compiling", start), lines("weights", start), lines("reading data", start));
        let of_kernels = |done| Some((done, 483, Unit::Things("kernels")));
        assert_eq!(counted.at(at(10), of_kernels(3)), None);
        let said = [
            counted.at(at(30), of_kernels(12)),
            sent.at(at(45), Some((3 << 29, 3 << 30, Unit::Bytes))),
            waited.at(at(61), None),
        ];
        assert_eq!(
            said.map(Option::unwrap),
            [
                "compiling: 12 of 483 kernels (2 %) after 30 s",
                "weights: 1.50 of 3.00 GiB (50 %) after 45 s",
                "reading data: 61 s so far"
            ]
        );
    }
}
