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

use crate::inputs::teacher_cache::{CacheManifest, CacheRecord};
use crate::run::error::RunError;
use crate::run::gpu::GpuRecord;
use crate::run::guard::GuardRecord;
use crate::run::metrics::{METRICS, Metrics};
use crate::run::out::{Out, Start};
use crate::run::record::{CertifiedBy, Known, RECORD, RESULTS, RunRecord, TeacherCertificate};
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
    if !out.join(RECORD).exists() {
        return Err(RunError::Unusable(format!(
            "no run at {}: expected a directory that `precast distill --out` or `precast train --out` wrote, with run.json and metrics.jsonl",
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

fn html(records: &[StepRecord], of_step: &[SampleLine], run: &RunRecord) -> String {
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
    let samples = samples::of_step(of_step) + &samples::table(run.samples.as_deref().unwrap_or_default());
    let facts = table(&facts(run));
    let body = format!("{}{charts}{guard}{samples}<h2>Run</h2>{facts}", summary(records, run));
    page(if has_teacher(run) { "precast distill" } else { "precast train" }, &body)
}

/// Options of a run that its summary is of.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    teacher: Option<String>,
    teacher_format: Option<String>,
    student: Option<String>,
    eval_data: Vec<String>,
    alpha: Option<f32>,
    temperature: Option<f32>,
}

/// True if the record of a run names a teacher: without one the loss is the cross entropy, and nothing else.
fn has_teacher(run: &RunRecord) -> bool {
    run.config.contains_key("teacher")
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
fn summary(records: &[StepRecord], run: &RunRecord) -> String {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return String::new() };
    let change = |value: fn(&StepRecord) -> Option<f64>| match (value(first), value(last)) {
        (Some(first), Some(last)) => format!("{first:.4} → {last:.4}"),
        _ => "not finite".to_owned(),
    };
    let speeds = records.iter().skip(1).map(|record| record.tokens_per_s).sorted_by(f64::total_cmp).collect_vec();
    let asked = Asked::deserialize(Value::Object(run.config.clone())).unwrap_or_default();
    let text = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    // Losses of other data do not compare.
    let since = run.held_out.map_or(0, |since| since.after_step);
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
    let formula = asked
        .alpha
        .zip(asked.temperature)
        .and_then(|(alpha, temperature)| Objective::Distill { alpha, temperature, beta: 0.0 }.formula());
    let is_cached = run.teacher_cache.is_some();
    let all_written = RESULTS.iter().filter_map(|name| Some(format!("{name} of step {}", run.result_step(name)?)));
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let rows = [
        ("command", run.parts.last().and_then(|part| some(part.command.clone()))),
        ("data", run.data.files.clone()),
        ("held-out data", some(asked.eval_data.join(", "))),
        ("teacher", of_teacher(text(asked.teacher))),
        ("teacher_format", of_teacher(text(asked.teacher_format)).filter(|_| !is_cached)),
        ("teacher cache", run.teacher_cache.as_ref().and_then(Known::known).map(cache)),
        ("teacher's certificate", run.teacher_certificate.as_ref().map(certificate)),
        ("student", Some(text(asked.student))),
        ("parameters that train", run.parameters.map(|counts| format!("{} of {}", counts.trained, counts.all))),
        ("device", some(run.device.name.clone())),
        ("GPU", gpu(records, run)),
        ("outcome", Some(text(run.outcome.as_ref().map(|outcome| outcome.status.to_string())))),
        ("guard", GuardRecord::of(guarded(records)).map(|guard| guard.to_string())),
        ("steps", Some(last.step.to_string())),
        ("tokens", Some(records.iter().map(|record| record.tokens).sum::<u64>().to_string())),
        ("loss is", formula),
        ("loss", Some(change(|r| r.loss))),
        ("kd_loss", of_teacher(change(|r| r.kd_loss))),
        ("ce_loss", of_teacher(change(|r| r.ce_loss))),
        ("eval_loss, held out", held_out),
        ("perplexity, held out", perplexity),
        ("written", some(all_written.collect_vec().join(", "))),
        ("median tokens/s", Some(speeds.get(speeds.len() / 2).map_or("?".to_owned(), |speed| format!("{speed:.0}")))),
        ("device memory, bytes", Some(last.memory_bytes.to_string())),
    ];
    table(&rows.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect_vec())
}

/// Describes the GPU on the average and at most, and what held its clock down; nothing where that is not known.
fn gpu(records: &[StepRecord], run: &RunRecord) -> Option<String> {
    let limits = run.gpu.and_then(|limits| limits.text());
    let did = GpuRecord::of_run(records.iter().map(|record| &record.gpu)).to_string();
    let all = [did].into_iter().filter(|text| !text.is_empty()).chain(limits).join("; ");
    Some(all).filter(|text| !text.is_empty())
}

/// Describes the cost of a teacher that is not exact, and how that is known.
fn certificate(certificate: &Known<TeacherCertificate>) -> String {
    let Some(TeacherCertificate { measured, by, .. }) = certificate.known() else {
        return "in run.json, not readable by this version".into();
    };
    let by = by.as_ref().map_or("?", |(CertifiedBy::Text(by) | CertifiedBy::File { file: by, .. })| by);
    format!("{measured} ({by})")
}

/// Describes the cache of a teacher.
fn cache(CacheRecord { manifest: CacheManifest { made, sequences, rows, .. }, sha256 }: &CacheRecord) -> String {
    format!("{sequences} sequences, {rows} tokens that count, of {}, digest {sha256}", made.teacher_stored)
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
    use precast_fatbins::Digest;

    use super::*;
    use crate::device::tests::made;
    use crate::run::gpu::Limits;
    use crate::run::step::HeldOutRecord;
    use crate::run::tests::steps;

    fn run(json: Value) -> RunRecord {
        serde_json::from_value(json).unwrap()
    }

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
        let without = html(&records, &[], &RunRecord::default());
        (records[0].held_out, records[1].held_out, records[3].held_out) = (held_out(3.0), held_out(1.5), held_out(2.0));
        records[0].gpu = GpuRecord { power_w: Some(500.0), ..GpuRecord::default() };
        records[2].gpu = GpuRecord { sm_clock_mhz: Some(1700), ..GpuRecord::default() };
        let with = html(&records, &[], &RunRecord::default());
        for (element, more) in [("<polyline", 3), ("<svg", 2)] {
            assert_eq!(with.matches(element).count(), without.matches(element).count() + more, "{element}");
        }
        assert!(with.contains("3.0000 → 2.0000, best 1.5000 after step 2"), "{with}");
        assert!(!without.contains("held out") && !without.contains("GPU"));
        let changed = html(
            &records,
            &[],
            &run(serde_json::json!({ "held_out": { "after_step": 2, "sha256": Digest::of(b"") } })),
        );
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
        let whole = run(serde_json::json!({
            "config": { "teacher": "t", "alpha": 0.5, "temperature": 2.0, "eval_data": ["held-out.txt"] },
            "data": { "files": "1 file of text" },
            "parts": [{}, { "command": "precast distill --final both" }],
            "student": { "step": 2 },
            "student.best": { "step": 1 },
            "gpu": Limits { steps: 3, power_limited_steps: 2, thermally_limited_steps: 0 },
            "teacher_certificate": certificate(&"first batch".into()),
        }));
        let taught = |certificate: &Value| {
            run(serde_json::json!({ "config": { "teacher": "t" }, "teacher_certificate": certificate }))
        };
        let of_file = taught(&certificate(&serde_json::json!({ "file": "t.json" })));
        let of_others = taught(&serde_json::json!({ "measured": { "kl": 1 } }));
        let one = [record(1, Some(3.0))];
        let tables = [summary(&records, &whole), summary(&one, &of_file), summary(&one, &of_others)];
        let sha256 = Digest::of(b"");
        let (made, head_sha256, index_sha256) = (made(), sha256, sha256);
        let manifest = CacheManifest { made, head_sha256, sequences: 3, rows: 40, hidden_bytes: 80, index_sha256 };
        let of_cache = CacheRecord { manifest, sha256 };
        let cached = run(serde_json::json!({ "config": { "teacher": "c/teacher" }, "teacher_cache": of_cache }));
        let exact = summary(&one, &run(serde_json::json!({ "config": { "teacher": "t" } })));
        let bare = summary(&one, &RunRecord::default());
        insta::assert_snapshot!(
            [&tables[..], &[exact, summary(&one, &cached), bare]].concat().join("\n\n").replace("</tr>", "</tr>\n")
        );
    }

    #[test]
    fn a_report_is_self_contained_and_survives_gaps() {
        let records = [record(1, Some(3.0)), record(2, None), record(3, Some(1.5))];
        let taught = serde_json::json!({ "config": { "teacher": "a<b", "student": "s" }, "device": { "name": "sim" } });
        let html = html(&records, &[], &run(taught));
        assert!(html.contains("3.0000 → 1.5000") && html.contains("a&lt;b"));
        assert!(!html.contains("http") && !html.contains("NaN") && !html.contains("<script"));
        assert_eq!(html.matches("<svg").count(), 5);
        let alone = super::html(&records, &[], &run(serde_json::json!({ "config": { "student": "s" } })));
        assert!(alone.contains("<h1>precast train") && !alone.contains("kd_loss") && !alone.contains("teacher"));
        assert_eq!(alone.matches("<svg").count(), 4);
        let _ = super::html(&[], &[], &RunRecord::default());
    }

    #[test]
    fn the_kernels_of_a_run_are_one_row() {
        let loads = [100, 23].map(|bytes| serde_json::json!({ "kernel": "a", "bytes": bytes }));
        let html = html(&[record(1, Some(3.0))], &[], &run(serde_json::json!({ "loads": loads })));
        assert!(html.contains("<td>loads</td><td>2 kernels, 123 bytes; each is in run.json</td>"), "{html}");
        assert!(!html.contains("loads.0"), "{html}");
    }
}
