//! Reads the files of a run as one that continues, and as its report: `run.json`, a checkpoint's `state.json`,
//! `metrics.jsonl` and `samples.jsonl`.
#![no_main]

use precast::run::checkpoint::Saved;
use precast::run::metrics::Metrics;
use precast::run::out::{Out, Start};
use precast::run::record::RunRecord;
use precast::run::report;
use precast_core::Digest;
use precast_fuzz::{Folder, joined, parts};
use precast_system::files::{LISTING, Listing};
use serde_json::json;

/// Name of a tensor of a checkpoint of two ranks.
const MASTER: &str = "checkpoint-2/master-0000";

precast_fuzz::target!(seeds, |input: &[u8]| {
    thread_local!(static FOLDER: Folder = Folder::new());
    FOLDER.with(|folder| {
        let [record, state, metrics, samples, first, second] = parts::<6>(input);
        for (name, part) in [("run.json", record), ("metrics.jsonl", metrics), ("samples.jsonl", samples)] {
            folder.put(name, part);
        }
        let names = ["1-of-00002.safetensors", "2-of-00002.safetensors"].map(|end| format!("{MASTER}{end}"));
        let files = [("checkpoint-2/state.json", state), (&names[0], first), (&names[1], second)];
        let listed = files.map(|(name, part)| {
            folder.put(name, part);
            (name.trim_start_matches("checkpoint-2/").to_owned(), Digest::of(part))
        });
        folder.put(&format!("checkpoint-2/{LISTING}"), Listing(listed.into()).text().as_bytes());
        let out = folder.path("");
        if let Ok(saved) = Saved::open(&out, 2) {
            let _ = saved.state.before();
            let elems = saved
                .state
                .shards
                .iter()
                .flatten()
                .map(|(_, elems)| elems)
                .fold(0, |sum: u64, n| sum.saturating_add(*n));
            if let Ok(mut masters) = saved.masters(elems) {
                let read = masters.read((0, elems)).expect("the files hold as many");
                assert_eq!(read.len() as u64, elems);
            }
        }
        if let Ok(metrics) = Metrics::read(&folder.path("metrics.jsonl")) {
            assert!(metrics.digest(metrics.records.len() as u64).is_some());
        }
        let Ok(record) = RunRecord::read(&out) else { return };
        let again = serde_json::from_value::<RunRecord>(serde_json::to_value(&record).expect("a record serializes"));
        again.expect("it was written");
        let _ = report::of_run(&out, &record);
        drop(Out::claim(&out, Start::Resume, &[]));
    });
});

/// Returns a run that recorded all there is, and one that recorded little.
fn seeds() -> Vec<Vec<u8>> {
    let digest = Digest::of(b"");
    let step = |step: u64| {
        json!({
            "step": step, "loss": 2.5, "kd_loss": 0.5, "ce_loss": 2.0, "grad_norm": 1.0, "lr": 0.001, "tokens": 64,
            "step_ms": 10.0, "tokens_per_s": 6400.0, "row_tokens_per_s": 6400.0, "padding_share": 0.25,
            "memory_bytes": 1 << 20, "power_w": 500.0, "sm_clock_mhz": 1700, "slowest_sm_clock_mhz": 1600,
            "temperature_c": 60, "eval_loss": 2.0, "eval_kd_loss": 0.5, "eval_ce_loss": 1.5, "eval_tokens": 64,
        })
    };
    let metrics = format!("{}\n{}\n", step(1), step(2));
    let sample = json!({
        "step": 1, "sequence": 0, "prompt": "a", "completion": "b", "prompt_ids": [1, 2], "completion_ids": [3],
    });
    let samples = format!("{sample}\n");
    let measured = json!({
        "kl_mean": 0.001, "kl_max": 0.1, "agreement": 0.98, "perplexity": 21.5, "exact_perplexity": 21.4, "tokens": 456,
    });
    let score = json!({
        "nll": 1.0, "uniform_nll": 2.0, "tokens": 48, "experts": { "least": 2, "most": 20, "rows": 144, "experts": 16 },
    });
    let certificate = json!({ "format": "int8", "measured": measured, "by": { "file": "t.json" } });
    let record = json!({
        "version": "0.1.0", "device": { "name": "sim", "ordinal": "0", "arch": "sim", "total_bytes": 1 << 30 },
        "config": {
            "teacher": "t", "student": "s", "alpha": 0.5, "temperature": 2.0, "eval_data": ["held-out.txt"], "steps": 2,
        },
        "data": { "files": "1 file of text", "sha256": digest, "rows": 4 }, "ranks": "2 on one host", "loads": [{}],
        "parameters": { "trained": 64, "all": 128 }, "memory": { "weights": 64 }, "models": { "student": digest },
        "parts": [{}, { "ended_step": 2, "command": "precast distill --final both" }], "notes": ["a note"],
        "metrics": { "lines": 2, "sha256": Digest::of(metrics.as_bytes()) }, "best": { "step": 1, "eval_loss": 2.0 },
        "held_out": { "after_step": 1, "sha256": digest }, "teacher_score": score, "teacher_certificate": certificate,
        "teachers": { "wide": { "score": score, "certificate": certificate } }, "waited_ms_a_step": 1.5,
        "samples": [{ "step": 1, "prompt": "a", "completion": "b", "reference": "c" }],
        "samples_written": { "bytes": samples.len(), "sha256": Digest::of(samples.as_bytes()) },
        "files": { "report.html": digest }, "replacing": {}, "replaces": [1], "largest_update": 0.5,
        "logs": { "precast.log": { "bytes": 0, "sha256": digest } }, "student": { "step": 2 },
        "gpu": { "steps": 3, "power_limited_steps": 2, "thermally_limited_steps": 0 },
    });
    let state = json!({
        "step": 2, "steps": 4, "run": { "lr": "0.1", "replicas": "2", "--packing": "rows" }, "tokens_sha256": digest,
        "metrics_sha256": digest, "shards": [[[0, 1], [3, 1]], [[1, 2]]],
    });
    let tensor = |values: &[f32]| {
        let bytes = 4 * values.len();
        let header = format!(r#"{{"master":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{bytes}]}}}}"#, values.len());
        let header = format!("{header:<width$}", width = header.len().next_multiple_of(8));
        let values = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &values[..]].concat()
    };
    let [first, second] = [[0.0, 3.0], [1.0, 2.0]].map(|values| tensor(&values));
    let texts = [record, state].map(|json| json.to_string());
    let whole = [texts[0].as_bytes(), texts[1].as_bytes(), metrics.as_bytes(), samples.as_bytes(), &first, &second];
    vec![joined(&whole), joined(&[b"{}", b"{}", step(1).to_string().as_bytes()])]
}
