use precast_fatbins::Digest;
use serde_json::Value;

use super::page::escaped;
use super::summary::summary;
use super::write::html;
use crate::device::tests::made;
use crate::inputs::teacher_cache::{CacheManifest, CacheRecord};
use crate::run::gpu::{GpuRecord, Limits};
use crate::run::record::RunRecord;
use crate::run::step::{HeldOutRecord, StepRecord};
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
    let changed =
        html(&records, &[], &run(serde_json::json!({ "held_out": { "after_step": 2, "sha256": Digest::of(b"") } })));
    assert!(changed.contains("2.0000 → 2.0000, best 2.0000 after step 4"), "{changed}");
}

/// A row a line: of a run that recorded all there is, of the certificate in a file and of one that nobody reads, and of
/// a run that recorded nothing.
#[test]
fn the_table_says_what_was_asked_for_measured_and_written() {
    let mut records: Vec<StepRecord> = (1..=3).map(|step| record(step, Some(4.0 - step as f64))).collect();
    (records[0].held_out, records[1].held_out) = (held_out(1.0), held_out(2.0));
    records[0].gpu = GpuRecord { power_w: Some(500.0), temperature_c: Some(60), ..GpuRecord::default() };
    records[2].gpu = GpuRecord { power_w: Some(700.0), sm_clock_mhz: Some(1700), ..GpuRecord::default() };
    let measured = serde_json::json!({
        "kl_mean": 0.00171, "kl_max": 0.16, "agreement": 0.974, "perplexity": 21.65, "exact_perplexity": 21.55,
            "tokens": 456
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
fn rows_of_experts_are_said_of_a_teacher_with_a_name_and_without() {
    let experts = serde_json::json!({ "least": 2, "most": 20, "rows": 144, "experts": 16 });
    let score = serde_json::json!({ "nll": 1.0, "uniform_nll": 2.0, "tokens": 48, "experts": experts });
    let said = |row: &str, of: Value| {
        let text = "2 to 20 of 144 each, 9 on average, in the last layer";
        let table = summary(&[record(1, Some(3.0))], &run(of));
        assert!(table.contains(&format!("<td>{row}</td><td>{text}</td>")), "{table}");
    };
    said("rows of an expert, first batch", serde_json::json!({ "teacher_score": score }));
    let named = serde_json::json!({ "teachers": { "wide": { "score": score } } });
    said("rows of an expert of teacher wide, first batch", named);
}

#[test]
fn a_report_is_self_contained_and_survives_gaps() {
    let records = [record(1, Some(3.0)), record(2, None), record(3, Some(1.5))];
    let taught = serde_json::json!({ "config": { "teacher": "a<b", "student": "s" }, "device": { "name": "sim" } });
    let html = html(&records, &[], &run(taught));
    assert!(html.contains("3.0000 → 1.5000") && html.contains("a&lt;b"));
    assert!(!html.contains("http") && !html.contains("NaN") && !html.contains("<script"));
    assert_eq!(html.matches("<svg").count(), 5);
    let alone = super::write::html(&records, &[], &run(serde_json::json!({ "config": { "student": "s" } })));
    assert!(alone.contains("<h1>precast train") && !alone.contains("kd_loss") && !alone.contains("teacher"));
    assert_eq!(alone.matches("<svg").count(), 4);
    let _ = super::write::html(&[], &[], &RunRecord::default());
}

#[test]
fn the_kernels_of_a_run_are_one_row() {
    let loads = [100, 23].map(|bytes| serde_json::json!({ "kernel": "a", "bytes": bytes }));
    let html = html(&[record(1, Some(3.0))], &[], &run(serde_json::json!({ "loads": loads })));
    assert!(html.contains("<td>loads</td><td>2 kernels, 123 bytes; each is in run.json</td>"), "{html}");
    assert!(!html.contains("loads.0"), "{html}");
}
