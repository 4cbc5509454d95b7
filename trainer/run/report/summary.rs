//! What a run was asked for, what it measured and what it wrote, in a few rows.

use itertools::Itertools;
use precast_plan::Objective;
use serde::Deserialize;
use serde_json::Value;

use super::page::table;
use crate::inputs::teacher_cache::{CacheManifest, CacheRecord};
use crate::run::gpu::GpuRecord;
use crate::run::guard::GuardRecord;
use crate::run::record::{CertifiedBy, Known, RESULTS, RunRecord, TeacherCertificate, TeacherRecord, TeacherScore};
use crate::run::step::{StepRecord, guarded, mean};

/// Options of a run that its summary is of.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    teacher: Option<OneOrSeveral>,
    teacher_format: Option<String>,
    student: Option<String>,
    eval_data: Vec<String>,
    alpha: Option<f32>,
    temperature: Option<f32>,
}

/// A teacher, or several by their names.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

/// True if the record of a run names a teacher: without one the loss is the cross entropy, and nothing else.
pub(super) fn has_teacher(run: &RunRecord) -> bool {
    run.config.contains_key("teacher")
}

/// The few numbers people look for first.
pub(super) fn summary(records: &[StepRecord], run: &RunRecord) -> String {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return String::new() };
    let change = |value: fn(&StepRecord) -> Option<f64>| match (value(first), value(last)) {
        (Some(first), Some(last)) => format!("{first:.4} → {last:.4}"),
        _ => "not finite".to_owned(),
    };
    let median = |value: fn(&StepRecord) -> Option<f64>| {
        let speeds = records.iter().skip(1).filter_map(value).sorted_by(f64::total_cmp).collect_vec();
        speeds.get(speeds.len() / 2).map(|speed| format!("{speed:.0}"))
    };
    let padding = mean(records, |record| record.padding_share);
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
    let teacher = asked.teacher.map(|teacher| match teacher {
        OneOrSeveral::One(teacher) => teacher,
        OneOrSeveral::Several(teachers) => teachers.join(", "),
    });
    let is_cached = run.teacher_cache.is_some();
    let all_written = RESULTS.iter().filter_map(|name| Some(format!("{name} of step {}", run.result_step(name)?)));
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let rows = [
        ("command", run.parts.last().and_then(|part| some(part.command.clone()))),
        ("data", run.data.files.clone()),
        ("held-out data", some(asked.eval_data.join(", "))),
        ("teacher", of_teacher(text(teacher))),
        ("teacher_format", of_teacher(text(asked.teacher_format)).filter(|_| !is_cached)),
        ("teacher cache", run.teacher_cache.as_ref().and_then(Known::known).map(cache)),
        ("rows of an expert, first batch", run.teacher_score.as_ref().and_then(expert_rows)),
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
        ("median tokens/s", Some(text(median(|record| Some(record.tokens_per_s))))),
        ("median tokens/s of rows, counted or not", median(|record| record.row_tokens_per_s)),
        ("places that are padding", padding.map(|share| format!("{:.1} %", 100.0 * share))),
        ("device memory, bytes", Some(last.memory_bytes.to_string())),
    ];
    let rows = rows.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    table(&rows.chain(of_named_teachers(run)).collect_vec())
}

/// Describes the GPU on the average and at most, and what held its clock down; nothing where that is not known.
fn gpu(records: &[StepRecord], run: &RunRecord) -> Option<String> {
    let limits = run.gpu.and_then(|limits| limits.text());
    let did = GpuRecord::of_run(records.iter().map(|record| &record.gpu)).to_string();
    let all = [did].into_iter().filter(|text| !text.is_empty()).chain(limits).join("; ");
    Some(all).filter(|text| !text.is_empty())
}

/// Describes what is known of each teacher that has a name.
fn of_named_teachers(run: &RunRecord) -> Vec<(String, String)> {
    let of_teacher = |(name, teacher): (&String, &TeacherRecord)| {
        let cache = teacher.cache.as_ref().and_then(Known::known).map(cache);
        let rows = teacher.score.as_ref().and_then(expert_rows);
        let certificate = teacher.certificate.as_ref().map(certificate);
        let cache = cache.map(|text| (format!("teacher {name}'s cache"), text));
        let rows = rows.map(|text| (format!("rows of an expert of teacher {name}, first batch"), text));
        let certificate = certificate.map(|text| (format!("teacher {name}'s certificate"), text));
        [cache, rows, certificate].into_iter().flatten().collect_vec()
    };
    run.teachers.iter().flat_map(of_teacher).collect()
}

/// Describes how the first batch divides among a teacher's experts.
fn expert_rows(score: &TeacherScore) -> Option<String> {
    score.experts.as_ref().map(ToString::to_string)
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
