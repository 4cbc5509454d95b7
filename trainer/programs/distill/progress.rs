//! Progress of a run, for people, while it trains: a bar where somebody watches, else lines.

use std::io::IsTerminal;
use std::time::Instant;

use precast_system::progress::{Bar, Pace};
use precast_system::{say, tee};

use crate::options::RunConfig;
use crate::run::rollout::RolloutRecord;
use crate::run::step::StepRecord;

pub struct StepProgress {
    /// None where nobody watches.
    bar: Option<Bar>,
    /// Steps between lines.
    every: u64,
    /// Time between lines where steps are long.
    pace: Pace,
    /// The first step of this process.
    first: u64,
    last: u64,
    /// True if a loss has parts.
    has_teacher: bool,
    floor_s: Option<f64>,
}

impl StepProgress {
    /// Creates the progress of the steps from `done` on.
    pub fn new(config: &RunConfig, done: u64, floor_s: Option<f64>) -> Self {
        let watched = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let style = "{bar:24} step {pos}/{len}  {msg}  {elapsed} gone, {eta} to go";
        let bar = watched.then(|| Bar::new(style).from(done, config.steps()));
        let (every, last, pace) = (config.output.log_every, config.steps(), Pace::start());
        Self { bar, every, pace, first: done + 1, last, has_teacher: config.objective.has_teacher(), floor_s }
    }

    /// True if a step, counted from 1, has a line.
    pub fn is_due(&self, step: u64) -> bool {
        step.is_multiple_of(self.every) || [self.first, self.last].contains(&step)
    }

    /// A step is done. What is out of the ordinary has a line of its own, and so have a held-out loss and a guard's
    /// distance.
    pub fn step(&mut self, record: &StepRecord) {
        let line = line(record, self);
        let beyond = record.guard.as_ref().is_some_and(|guard| !guard.is_within());
        let notable = record.skipped || record.held_out.is_some() || beyond;
        let due = self.is_due(record.step);
        if let Some(bar) = &self.bar {
            bar.set(record.step, self.last);
            bar.message(format!("loss {}  {:.0} tokens/s", number(record.loss), record.tokens_per_s));
            if notable {
                bar.suspend(|| say!("{line}"));
            } else if due {
                // The log has no bar.
                tee::line(&line);
            }
            return;
        }
        let now = Instant::now();
        let is_late = self.pace.is_due(now);
        if due || notable || record.guard.is_some() || is_late {
            self.pace.line(now);
            say!("{line}");
        }
    }

    /// Prints a line beside the bar.
    pub fn say(&self, line: &str) {
        self.suspend(|| say!("{line}"));
    }

    /// Has others print beside the bar.
    pub fn suspend(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or("not finite".to_owned(), |value| format!("{value:.4}"))
}

fn line(record: &StepRecord, of: &StepProgress) -> String {
    // Without a teacher the loss is the cross entropy and nothing else.
    let parts = match of.has_teacher {
        true => format!("  kd {}  ce {}", number(record.kd_loss), number(record.ce_loss)),
        false => String::new(),
    };
    let has_others = |rate: &f64| *rate > record.tokens_per_s || record.padding_share > Some(0.0);
    let rows = record.row_tokens_per_s.filter(has_others).map(|rate| {
        format!("  {rate:.0}/s in rows, {:.1} % padding", 100.0 * record.padding_share.unwrap_or_default())
    });
    let floor = of.floor_s.map(|floor_s| format!("  {:.0} % of floor", 1e5 * floor_s / record.step_ms));
    let rollouts = record.rollouts.as_ref().map(|rollouts| {
        let RolloutRecord { completion_tokens, rollout_tokens_per_s, .. } = rollouts;
        format!("  {completion_tokens:.0} tokens a completion at {rollout_tokens_per_s:.0}/s")
    });
    let held_out = record.held_out.as_ref().map(|record| format!("  eval {}", number(record.eval_loss)));
    let guard = record
        .guard
        .as_ref()
        .map(|guard| format!("  guard {guard}{}", if guard.is_within() { "" } else { " BEYOND the bound" }));
    format!(
        "step {}/{}  loss {}{parts}  norm {}  lr {:.2e}  {:.0} tokens/s  {:.0} ms{}{}{}{}{}{}",
        record.step,
        of.last,
        number(record.loss),
        number(record.grad_norm),
        record.lr,
        record.tokens_per_s,
        record.step_ms,
        rows.unwrap_or_default(),
        rollouts.unwrap_or_default(),
        floor.unwrap_or_default(),
        held_out.unwrap_or_default(),
        guard.unwrap_or_default(),
        if record.skipped { "  skipped: gradient not finite" } else { "" },
    )
}
