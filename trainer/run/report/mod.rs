//! `report.html`: one file, no network, with the curves of a run and what it was.

mod bars;
mod chart;
mod guard;
mod samples;
pub(crate) mod svg;

use std::path::Path;

use itertools::Itertools;
use precast_plan::Objective;
use precast_system::terminal::visible;
use precast_system::{count, files};
use serde::Deserialize;
use serde_json::Value;

use crate::run::certificate::Measured;
use crate::run::error::RunError;
use crate::run::gpu::{GpuRecord, Limits};
use crate::run::guard::GuardRecord;
use crate::run::metrics::{METRICS, Metrics};
use crate::run::out::{Out, Start};
use crate::run::record::{self, RESULTS, RunRecord, SAMPLES, TEACHER_CACHE};
use crate::run::report_file::{REPORT, last_line};
use crate::run::samples_file::{SampleLine, latest};
use crate::run::step::{StepRecord, guarded};
pub(crate) use bars::{Bar, bars};
pub(crate) use chart::{Axis, Chart, Series};
use svg::{BLUE, GREEN, GREY, ORANGE, PURPLE, RED};

/// Rewrites a run's `report.html`, also while the run is training: the run rewrites it when it ends.
///
/// # Errors
/// [`RunError`] where the run cannot be read or the file cannot be written.
pub fn write(out: &Path) -> Result<(), RunError> {
    if !out.join(record::RECORD).exists() {
        return Err(RunError::Unusable(format!(
            "no run at {}: expected a directory that `precast distill --out` or `precast train --out` wrote, with run.json and metrics.jsonl",
            out.display()
        )));
    }
    let run = record::read(out)?;
    let html = of_run(out, &run)?;
    match Out::claim(out, Start::Resume, &[]) {
        Ok(mut out) => {
            let mut record = RunRecord(run);
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
pub fn of_run(out: &Path, run: &Value) -> Result<String, RunError> {
    let of_step = latest(out, samples::OF_STEP)?;
    let page = html(&Metrics::read(&out.join(METRICS))?.records, &of_step, run);
    let last = last_line(page.as_bytes());
    Ok(page + &last)
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2024; --faint: #8b9198; --line: #dfe3e7; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --faint: #8b9198; --line: #33383d; --paper: #15181b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin: 2rem 0 .3rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--faint); font-size: 11px; }
.grid { stroke: var(--line); } table { border-collapse: collapse; } td { padding: .1rem 1.2rem .1rem 0; vertical-align: top; }
td:first-child { color: var(--faint); } td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.samples td { white-space: pre-wrap; padding-bottom: .6rem; }
.wide { overflow-x: auto; } .wide svg { min-width: 860px; }
@media (max-width: 40rem) { svg { overflow: visible; } :not(.wide) > svg text { font-size: 20px; } td { padding-right: .5rem; } }
";

fn html(records: &[StepRecord], of_step: &[SampleLine], run: &Value) -> String {
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
    let others = [
        chart("Gradient norm, before clipping", vec![line("grad_norm", PURPLE, |r| r.grad_norm)]),
        chart("Learning rate", vec![line("lr", GREY, |r| Some(r.lr))]),
        chart("Tokens a second", vec![line("tokens_per_s", RED, |r| Some(r.tokens_per_s))]),
    ];
    let charts = [chart("Loss, nats a token", loss)].into_iter().chain(kd).chain(others).chain(power).chain(clocks);
    let charts = charts.map(|chart| chart.svg()).join("");
    let guard = guard::by_layer(records);
    let samples = samples::of_step(of_step) + &samples::table(run);
    let facts = table(&flatten("", &folded(run)));
    let body = format!("{}{charts}{guard}{samples}<h2>Run</h2>{facts}", summary(records, run));
    page(if has_teacher(run) { "precast distill" } else { "precast train" }, &body)
}

/// True if the record of a run names a teacher: without one the loss is the cross entropy, and nothing else.
fn has_teacher(run: &Value) -> bool {
    run.pointer("/config/teacher").is_some()
}

/// A whole page: it needs no other file.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <h1>{title}</h1>{body}</body></html>\n"
    )
}

/// The few numbers people look for first.
fn summary(records: &[StepRecord], run: &Value) -> String {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return String::new() };
    let change = |value: fn(&StepRecord) -> Option<f64>| match (value(first), value(last)) {
        (Some(first), Some(last)) => format!("{first:.4} → {last:.4}"),
        _ => "not finite".to_owned(),
    };
    let speeds = records.iter().skip(1).map(|record| record.tokens_per_s).sorted_by(f64::total_cmp).collect_vec();
    let text = |pointer: &str| run.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
    let number = |pointer: &str| run.pointer(pointer).map_or("?".to_owned(), Value::to_string);
    // Losses of other data do not compare.
    let since = run.pointer("/held_out/after_step").and_then(Value::as_u64).unwrap_or(0);
    let compared = records.iter().filter(|record| record.step > since);
    let scored = compared.filter_map(|record| Some((record.step, record.held_out.as_ref()?.eval_loss?))).collect_vec();
    let best = scored.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    let held_out = scored.first().zip(scored.last()).zip(best).map(|(((_, first), (_, last)), (step, best))| {
        format!("{first:.4} → {last:.4}, best {best:.4} after step {step}")
    });
    let perplexities = records.iter().filter(|record| record.step > since);
    let perplexities = perplexities
        .filter_map(|record| Some((record.step, record.held_out.as_ref()?.eval_ce_loss?.exp())))
        .collect_vec();
    let perplexity = perplexities.first().zip(perplexities.last()).map(|((_, first), (_, last))| {
        let of_best = best.and_then(|(best, _)| perplexities.iter().find(|(step, _)| step == best));
        let of_best = of_best.map_or(String::new(), |(step, value)| format!(", {value:.4} after step {step}"));
        format!("{first:.4} → {last:.4}{of_best}")
    });
    let of_teacher = |value: String| has_teacher(run).then_some(value);
    let rows = [
        ("command", command(run)),
        ("data", run.pointer("/data/files").and_then(Value::as_str).map(str::to_owned)),
        ("held-out data", list(run, "/config/eval_data")),
        ("teacher", of_teacher(text("/config/teacher"))),
        ("teacher_format", of_teacher(text("/config/teacher_format")).filter(|_| run.get(TEACHER_CACHE).is_none())),
        ("teacher cache", cache(run)),
        ("teacher's certificate", certificate(run)),
        ("student", Some(text("/config/student"))),
        ("parameters that train", Some(format!("{} of {}", number("/parameters/trained"), number("/parameters/all")))),
        ("device", Some(text("/device/name"))),
        ("GPU", gpu(records, run)),
        ("outcome", Some(text("/outcome/status"))),
        ("guard", GuardRecord::of(guarded(records)).map(|guard| guard.to_string())),
        ("steps", Some(last.step.to_string())),
        ("tokens", Some(records.iter().map(|record| record.tokens).sum::<u64>().to_string())),
        ("loss is", formula(run)),
        ("loss", Some(change(|r| r.loss))),
        ("kd_loss", of_teacher(change(|r| r.kd_loss))),
        ("ce_loss", of_teacher(change(|r| r.ce_loss))),
        ("eval_loss, held out", held_out),
        ("perplexity, held out", perplexity),
        ("written", written(run)),
        ("median tokens/s", Some(speeds.get(speeds.len() / 2).map_or("?".to_owned(), |speed| format!("{speed:.0}")))),
        ("device memory, bytes", Some(last.memory_bytes.to_string())),
    ];
    table(&rows.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect_vec())
}

/// The command line of the last part of a run.
fn command(run: &Value) -> Option<String> {
    Some(run.get("parts")?.as_array()?.last()?.get("command")?.as_str()?.to_owned())
}

/// Texts of a list; nothing of an empty one.
fn list(run: &Value, pointer: &str) -> Option<String> {
    let all = run.pointer(pointer)?.as_array()?.iter().filter_map(Value::as_str).join(", ");
    Some(all).filter(|text| !text.is_empty())
}

/// The loss as a formula of its parts; nothing without a teacher.
fn formula(run: &Value) -> Option<String> {
    let number = |name: &str| run.pointer(&format!("/config/{name}")).and_then(Value::as_f64);
    let (alpha, temperature) = (number("alpha")? as f32, number("temperature")? as f32);
    Objective::Distill { alpha, temperature, beta: 0.0 }.formula()
}

/// The steps whose weights are in the directories that the run has written.
fn written(run: &Value) -> Option<String> {
    let of = |name: &&str| Some(format!("{name} of step {}", run.get(*name)?.get("step")?));
    let all = RESULTS.iter().filter_map(of).join(", ");
    Some(all).filter(|text| !text.is_empty())
}

/// Describes the GPU on the average and at most, and what held its clock down; nothing where that is not known.
fn gpu(records: &[StepRecord], run: &Value) -> Option<String> {
    let limits = run.get("gpu").and_then(|limits| Limits::deserialize(limits).ok()).and_then(|limits| limits.text());
    let did = GpuRecord::of_run(records.iter().map(|record| &record.gpu)).to_string();
    let all = [did].into_iter().filter(|text| !text.is_empty()).chain(limits).join("; ");
    Some(all).filter(|text| !text.is_empty())
}

/// Describes the cost of a teacher that is not exact, and how that is known; none of an exact one.
fn certificate(run: &Value) -> Option<String> {
    let known = run.get("teacher_certificate")?;
    let Ok(measured) = serde_json::from_value::<Measured>(known["measured"].clone()) else {
        return Some("in run.json, not readable by this version".into());
    };
    let by = known.pointer("/by/file").or_else(|| known.get("by")).and_then(Value::as_str).unwrap_or("?");
    Some(format!("{measured} ({by})"))
}

/// Describes the cache of the teacher, if the run read one.
fn cache(run: &Value) -> Option<String> {
    let text = |name: &str| {
        run.get(TEACHER_CACHE)?.get(name).map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
    };
    let [sequences, rows, stored, sha256] = ["sequences", "rows", "teacher_stored", "sha256"].map(text);
    Some(format!("{} sequences, {} tokens that count, of {}, digest {}", sequences?, rows?, stored?, sha256?))
}

/// The record with its kernels in one row, of which there are more than of all else, and without what has a table of its own.
fn folded(run: &Value) -> Value {
    let mut run = run.clone();
    if let Some(loads) = run.get("loads").and_then(Value::as_array) {
        let bytes: u64 = loads.iter().filter_map(|load| load.get("bytes")?.as_u64()).sum();
        run["loads"] = format!("{}, {bytes} bytes; each is in run.json", count(loads.len(), "kernel")).into();
    }
    if let Some(record) = run.as_object_mut() {
        record.remove(SAMPLES);
    }
    run
}

/// Text as it stands in HTML.
fn escaped(text: &str) -> String {
    visible(text).replace('&', "&amp;").replace('<', "&lt;")
}

/// Rows of a name and a value.
pub(crate) fn table(rows: &[(String, String)]) -> String {
    let row =
        |(name, value): &(String, String)| format!("<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value));
    let rows: String = rows.iter().map(row).collect();
    format!("<table>{rows}</table>")
}

/// A JSON tree as rows of dotted names.
pub(crate) fn flatten(prefix: &str, value: &Value) -> Vec<(String, String)> {
    let below = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    match value {
        Value::Object(map) => map.iter().flat_map(|(name, value)| flatten(&below(name), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().flat_map(|(index, value)| flatten(&below(&index.to_string()), value)).collect()
        }
        Value::String(text) => vec![(prefix.to_owned(), text.clone())],
        other => vec![(prefix.to_owned(), other.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::step::HeldOutRecord;
    use crate::run::tests::steps;

    #[test]
    fn text_of_others_is_text() {
        assert_eq!(escaped("<b>&\u{202e}\u{1b}é"), "&lt;b>&amp;\\u202e\\u001bé");
    }

    pub(super) fn record(step: u64, loss: Option<f64>) -> StepRecord {
        let numbers = StepRecord { kd_loss: loss, ce_loss: loss, grad_norm: loss, ..steps(&[0.0], &[]).remove(0) };
        let rates = StepRecord { tokens: 64, step_ms: 10.0, tokens_per_s: 6400.0, memory_bytes: 1 << 20, ..numbers };
        StepRecord { step, loss, skipped: loss.is_none(), ..rates }
    }

    fn held_out(loss: f64) -> Option<HeldOutRecord> {
        let eval_loss = Some(loss);
        Some(HeldOutRecord { eval_loss, eval_kd_loss: None, eval_ce_loss: eval_loss, eval_tokens: 1 })
    }

    #[test]
    fn held_out_losses_and_the_gpu_are_in_charts() {
        let mut records: Vec<StepRecord> = (1..=4).map(|step| record(step, Some(3.0))).collect();
        let without = html(&records, &[], &Value::Null);
        (records[0].held_out, records[1].held_out, records[3].held_out) = (held_out(3.0), held_out(1.5), held_out(2.0));
        records[0].gpu = GpuRecord { power_w: Some(500.0), ..GpuRecord::default() };
        records[2].gpu = GpuRecord { sm_clock_mhz: Some(1700), ..GpuRecord::default() };
        let with = html(&records, &[], &Value::Null);
        for (element, more) in [("<polyline", 3), ("<svg", 2)] {
            assert_eq!(with.matches(element).count(), without.matches(element).count() + more, "{element}");
        }
        assert!(with.contains("3.0000 → 2.0000, best 1.5000 after step 2"), "{with}");
        assert!(!without.contains("held out") && !without.contains("GPU"));
        let changed = html(&records, &[], &serde_json::json!({ "held_out": { "after_step": 2 } }));
        assert!(changed.contains("2.0000 → 2.0000, best 2.0000 after step 4"), "{changed}");
    }

    /// A row a line: of a run that recorded all there is, of the certificate in a file and of one that nobody reads, and of a run that
    /// recorded nothing.
    #[test]
    fn the_table_says_what_was_asked_for_measured_and_written() {
        let mut records: Vec<StepRecord> = (1..=3).map(|step| record(step, Some(4.0 - step as f64))).collect();
        (records[0].held_out, records[1].held_out) = (held_out(1.0), held_out(2.0));
        records[0].gpu = GpuRecord { power_w: Some(500.0), temperature_c: Some(60), ..GpuRecord::default() };
        records[2].gpu = GpuRecord { power_w: Some(700.0), sm_clock_mhz: Some(1700), ..GpuRecord::default() };
        let measured = serde_json::json!({
            "kl_mean": 0.00171, "kl_max": 0.16, "agreement": 0.974, "perplexity": 21.65, "exact_perplexity": 21.55, "tokens": 456
        });
        let certificate = |by: &Value| serde_json::json!({ "format": "int8", "measured": measured, "by": by });
        let whole = serde_json::json!({
            "config": { "teacher": "t", "alpha": 0.5, "temperature": 2.0, "eval_data": ["held-out.txt"] },
            "data": { "files": "1 file of text" },
            "parts": [{}, { "command": "precast distill --final both" }],
            "student": { "step": 2 },
            "student.best": { "step": 1 },
            "gpu": Limits { steps: 3, power_limited_steps: 2, thermally_limited_steps: 0 },
            "teacher_certificate": certificate(&"first batch".into()),
        });
        let taught = |certificate: &Value| serde_json::json!({ "config": { "teacher": "t" }, "teacher_certificate": certificate });
        let of_file = taught(&certificate(&serde_json::json!({ "file": "t.json" })));
        let of_others = taught(&serde_json::json!({ "measured": { "kl": 1 } }));
        let one = [record(1, Some(3.0))];
        let tables = [summary(&records, &whole), summary(&one, &of_file), summary(&one, &of_others)];
        let of_cache =
            serde_json::json!({ "sequences": 3, "rows": 40, "teacher_stored": "Q4_K, 9 tensors", "sha256": "ab" });
        let cached = serde_json::json!({ "config": { "teacher": "c/teacher" }, "teacher_cache": of_cache });
        let exact = summary(&one, &serde_json::json!({ "config": { "teacher": "t" } }));
        let bare = summary(&one, &serde_json::json!({ "config": {} }));
        insta::assert_snapshot!(
            [&tables[..], &[exact, summary(&one, &cached), bare]].concat().join("\n\n").replace("</tr>", "</tr>\n")
        );
    }

    #[test]
    fn a_report_is_self_contained_and_survives_gaps() {
        let records = [record(1, Some(3.0)), record(2, None), record(3, Some(1.5))];
        let run = serde_json::json!({ "config": { "teacher": "a<b", "student": "s" }, "device": { "name": "sim" } });
        let html = html(&records, &[], &run);
        assert!(html.contains("3.0000 → 1.5000") && html.contains("a&lt;b"));
        assert!(!html.contains("http") && !html.contains("NaN") && !html.contains("<script"));
        assert_eq!(html.matches("<svg").count(), 5);
        let alone = super::html(&records, &[], &serde_json::json!({ "config": { "student": "s" } }));
        assert!(alone.contains("<h1>precast train") && !alone.contains("kd_loss") && !alone.contains("teacher"));
        assert_eq!(alone.matches("<svg").count(), 4);
        let _ = super::html(&[], &[], &Value::Null);
    }

    #[test]
    fn the_kernels_of_a_run_are_one_row() {
        let loads = [100, 23].map(|bytes| serde_json::json!({ "kernel": "a", "bytes": bytes }));
        let html = html(&[record(1, Some(3.0))], &[], &serde_json::json!({ "config": {}, "loads": loads }));
        assert!(html.contains("<td>loads</td><td>2 kernels, 123 bytes; each is in run.json</td>"), "{html}");
        assert!(!html.contains("loads.0"), "{html}");
    }
}
