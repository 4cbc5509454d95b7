//! Results of a benchmark, as people read them: a table, and `report.html` with a picture.

use std::fmt;
use std::path::Path;

use precast_system::files::{Aside, Existing};
use serde::Serialize;

use super::record::{KernelRecord, Record, StepRecord};
use super::sweep::Sweep;
use crate::base::startup_times::StartupRecord;
use crate::programs::failure::Failure;
use crate::run::out::check_directory;
use crate::run::report::{Bar, bars, flatten, page, table};

impl Record {
    /// Writes `bench.json` and `report.html`, in place of those of an earlier benchmark.
    ///
    /// # Errors
    /// [`Failure::Run`] where something else is there, [`Failure::Io`].
    pub fn write(&self, out: &Path) -> Result<(), Failure> {
        write(out, self, &self.html())
    }

    fn html(&self) -> String {
        let mut rows: Vec<Bar> = self.kernels.iter().map(bar).collect();
        let idle = self.step.between_ms;
        let note = format!("{idle:.2} ms");
        rows.push(Bar { name: "between launches".to_owned(), value: idle.max(0.0), part: 0.0, note });
        let run = serde_json::to_value(self).expect("plain data serializes");
        // A result that is in the pictures is not repeated.
        let drawn = |name: &str| {
            name.starts_with("kernels.")
                || name.starts_with("beside_bundle.products.")
                || name.starts_with("sweep.points.")
        };
        let rest: Vec<(String, String)> = flatten("", &run).into_iter().filter(|(name, _)| !drawn(name)).collect();
        let body = format!(
            "{}{}{}<h2>Run</h2>{}",
            table(&self.summary()),
            bars("Kernels of a step, ms", PARTS, &rows),
            self.sweep.as_ref().map(Sweep::svg).unwrap_or_default(),
            table(&rest)
        );
        page("precast bench", &body)
    }

    /// The few numbers people look for first.
    fn summary(&self) -> Vec<(String, String)> {
        let StepRecord { step_ms, tokens, tokens_per_s, hidden_bytes, kernels_ms, launches, .. } = self.step;
        let config = &self.config;
        let shape =
            format!("{} x {} x {} tokens", config.division.grad_accum, config.shape.batch_size, config.shape.seq_len);
        let mut rows = vec![("device", self.device["name"].as_str().unwrap_or("?").to_owned())];
        rows.extend(config.models().iter().map(|(role, path)| (role.name(), path.display().to_string())));
        rows.push(("step", format!("{step_ms:.2} ms, median of {}", config.steps())));
        let precision = config.arithmetic.precision;
        rows.push(("tokens", format!("{tokens} ({shape}, {precision}), {tokens_per_s:.0} a second")));
        if let (Some(floor_ms), Some(share), Some(limit)) = (self.step.floor_ms, self.step.share_of_floor, self.limit) {
            let flops = self.step.flops as f64 / 1e12;
            let floor = format!("{:.1} % of floor: {flops:.2} TFLOP take {floor_ms:.2} ms", 100.0 * share);
            rows.push(("speed of light", format!("{floor} by the figures of {}", limit.device)));
        }
        if let Some(bytes) = hidden_bytes {
            let rate = bytes as f64 / step_ms / 1e3;
            rows.push(("cache", format!("{bytes} bytes a step are read of the cache, {rate:.1} MB/s")));
        }
        rows.push(("kernels", format!("{kernels_ms:.2} ms in {launches} launches, one after the other")));
        rows.push(match self.step.between_ms {
            idle if idle >= 0.0 => ("between launches", format!("{idle:.2} ms")),
            overlap => ("launches overlap", format!("by {:.2} ms", -overlap)),
        });
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Legend of a bar's part and of the bar.
pub(super) const PARTS: [&str; 2] = ["the least by the device's limits", "measured"];

/// Writes `bench.json` and `report.html`, in place of those of an earlier benchmark.
pub(super) fn write(out: &Path, record: &impl Serialize, html: &str) -> Result<(), Failure> {
    let out = check_directory(out, Existing::Replace, &[])?;
    let json = serde_json::to_string_pretty(record).expect("plain data serializes") + "\n";
    let write = || {
        let mut aside = Aside::new(&out)?;
        aside.write("bench.json", json.as_bytes())?;
        aside.write("report.html", html.as_bytes())?;
        aside.list()?;
        aside.publish(Existing::Replace)
    };
    write().map_err(Failure::io("write", &out))
}

pub(super) fn bar(kernel: &KernelRecord) -> Bar {
    Bar {
        name: format!("{}  {}", shortened(&kernel.purpose, 34), kernel.kernel.split('{').next().unwrap_or("")),
        value: kernel.step_ms,
        part: kernel.share_of_limit.unwrap_or(0.0) * kernel.step_ms,
        note: format!("{:.2} ms, {}", kernel.step_ms, kernel.rate()),
    }
}

/// Writes kernels of a step as a table, in their order.
pub(super) fn kernels_text(kernels: &[KernelRecord], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\nlaunches  us/launch   ms/step   share           rate  of limit  {:<44}  kernel", "for")?;
    for kernel in kernels {
        let share_of_limit = kernel.share_of_limit.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        writeln!(
            f,
            "{:>8} {:>10.2} {:>9.3} {:>5.1} % {:>14} {share_of_limit:>9}  {:<44}  {}",
            kernel.launches,
            kernel.launch_us,
            kernel.step_ms,
            100.0 * kernel.share,
            kernel.rate(),
            shortened(&kernel.purpose, 44),
            kernel.kernel,
        )?;
    }
    Ok(())
}

/// Writes start-up by phase.
pub(super) fn startup_text(startup: &StartupRecord, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "\nstart-up {:.3} s", startup.total_s)?;
    startup.phases.iter().try_for_each(|phase| write!(f, "\n  {:<18} {:>8.3}", phase.name, phase.seconds))
}

/// At most so many characters of a text.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.summary() {
            writeln!(f, "{name:<17} {value}")?;
        }
        kernels_text(&self.kernels, f)?;
        if let Some(comparison) = &self.beside_bundle {
            writeln!(f, "\n{comparison}")?;
        }
        writeln!(f, "\nmemory\n{}", self.memory.planned)?;
        startup_text(&self.startup, f)?;
        self.sweep.iter().try_for_each(|sweep| write!(f, "\n\n{sweep}"))
    }
}
