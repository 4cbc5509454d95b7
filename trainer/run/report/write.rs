//! The report of a run.

use std::path::Path;

use itertools::Itertools;
use precast_system::{count, files};

use super::chart::{Axis, Chart, Series};
use super::page::{flatten, page, table};
use super::summary::{has_teacher, summary};
use super::svg::{BLUE, GREEN, GREY, ORANGE, PURPLE, RED};
use super::{guard, samples};
use crate::run::error::RunError;
use crate::run::metrics::{METRICS, Metrics};
use crate::run::out::{Out, Start};
use crate::run::record::{RECORD, RunRecord};
use crate::run::report_file::{REPORT, last_line};
use crate::run::samples_file::{SampleLine, latest};
use crate::run::step::StepRecord;

/// Rewrites a run's `report.html`, also while the run is training: the run rewrites it when it ends.
///
/// # Errors
/// [`RunError`] where the run cannot be read or the file cannot be written.
pub fn write(out: &Path) -> Result<(), RunError> {
    if !out.join(RECORD).exists() {
        return Err(RunError::Unusable(format!(
            "no run at {}: expected a directory that `precast distill --out` or `precast train --out` wrote, with \
            run.json and metrics.jsonl",
            out.display()
        )));
    }
    let mut record = RunRecord::read(out)?;
    let html = of_run(out, &record)?;
    match Out::claim(out, Start::Resume, &[]) {
        Ok(mut out) => {
            out.publish_file(REPORT, html.as_bytes(), &mut record)?;
            out.record(&mut record)
        }
        Err(RunError::Busy { .. }) => {
            let path = out.join(REPORT);
            files::write_whole(&path, html.as_bytes()).map_err(RunError::io("write", path))
        }
        Err(failure) => Err(failure),
    }
}

/// The report of a run, from its `metrics.jsonl` and its record.
///
/// # Errors
/// [`RunError`] where the metrics cannot be read.
pub fn of_run(out: &Path, run: &RunRecord) -> Result<String, RunError> {
    let of_step = latest(out, samples::OF_STEP)?;
    let page = html(&Metrics::read(&out.join(METRICS))?.records, &of_step, run);
    let last = last_line(page.as_bytes());
    Ok(page + &last)
}

pub(super) fn html(records: &[StepRecord], of_step: &[SampleLine], run: &RunRecord) -> String {
    let line = |name: &str, color, value: fn(&StepRecord) -> Option<f64>| {
        let points = records.iter().filter_map(|record| Some((record.step as f64, value(record)?))).collect();
        Series { name: name.to_owned(), color, points }
    };
    let chart = |title, series| Chart { title, axis: Axis::Linear, series };
    let of_some = |name, color, value: fn(&StepRecord) -> Option<f64>| {
        let line = line(name, color, value);
        (!line.points.is_empty()).then_some(line)
    };
    let mut loss = vec![line("loss", BLUE, |r| r.loss)];
    let mut kd = None;
    if has_teacher(run) {
        loss.push(line("ce_loss", ORANGE, |r| r.ce_loss));
        let title = "kd_loss: divergence of teacher and student, nats a token";
        let mut series = vec![line("kd_loss", GREEN, |r| r.kd_loss)];
        series.extend(of_some("eval_kd_loss, held out", PURPLE, |r| r.held_out.as_ref()?.eval_kd_loss));
        kd = Some(chart(title, series));
    }
    loss.extend(of_some("eval_loss, held out", RED, |r| r.held_out.as_ref()?.eval_loss));
    let clock = of_some("sm_clock_mhz", BLUE, |r| r.gpu.sm_clock_mhz.map(f64::from));
    let slowest = of_some("slowest_sm_clock_mhz", ORANGE, |r| r.gpu.slowest_sm_clock_mhz.map(f64::from));
    let clocks: Vec<Series> = clock.into_iter().chain(slowest).collect();
    let power = of_some("power_w", RED, |r| r.gpu.power_w).map(|line| chart("Power of the GPU, W", vec![line]));
    let clocks = (!clocks.is_empty()).then(|| chart("SM clock of the GPU, MHz", clocks));
    let mut speeds = vec![line("tokens_per_s", RED, |r| Some(r.tokens_per_s))];
    speeds.extend(of_some("row_tokens_per_s", GREY, |r| r.row_tokens_per_s));
    let others = [
        chart("Gradient norm, before clipping", vec![line("grad_norm", PURPLE, |r| r.grad_norm)]),
        chart("Learning rate", vec![line("lr", GREY, |r| Some(r.lr))]),
        chart("Tokens a second", speeds),
    ];
    let charts = [chart("Loss, nats a token", loss)].into_iter().chain(kd).chain(others).chain(power).chain(clocks);
    let charts = charts.map(|chart| chart.svg()).join("");
    let guard = guard::by_layer(records);
    let samples = samples::of_step(of_step) + &samples::table(run.samples.as_deref().unwrap_or_default());
    let facts = table(&facts(run));
    let body = format!("{}{charts}{guard}{samples}<h2>Run</h2>{facts}", summary(records, run));
    page(if has_teacher(run) { "precast distill" } else { "precast train" }, &body)
}

/// The record as rows, with its kernels in one, of which there are more than of all else, and without what has a table
/// of its own.
fn facts(run: &RunRecord) -> Vec<(String, String)> {
    let bytes: u64 = run.loads.iter().map(|load| load.bytes).sum();
    let loads = format!("{}, {bytes} bytes; each is in run.json", count(run.loads.len(), "kernel"));
    let run = RunRecord { loads: Vec::new(), samples: None, ..run.clone() };
    let mut rows = flatten("", &run.to_json());
    rows.insert(rows.partition_point(|(name, _)| name.as_str() < "loads"), ("loads".to_owned(), loads));
    rows
}
