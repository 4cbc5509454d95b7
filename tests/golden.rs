//! The trajectory that PyTorch computed: every step's losses and norm, every gradient, the logits, the result.

use std::path::PathBuf;

use precast::data::MicroBatch;
use precast::metrics::StepRecord;
use precast_plan::{Precision, Recompute};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::support::{self, distance, distill, fixture, floats, metrics_of};

/// Sequences and tokens of the case.
pub const BATCH: usize = 4;
pub const SEQ_LEN: usize = 64;

#[derive(Deserialize)]
pub struct Reference {
    pub loss: f64,
    pub kd_loss: f64,
    pub ce_loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
}

pub fn case(name: &str) -> PathBuf {
    fixture("golden/qwen2-tied").join(name)
}

fn run(precision: &str, recompute: Recompute) -> (tempfile::TempDir, Vec<StepRecord>) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut command = distill(&case("teacher"), &case("student"), &case("tokens.bin"), &out);
    command.args(["--steps", "20", "--batch-size", "4", "--seq-len", "64", "--grad-accum", "1", "--lr", "1e-3"]);
    command.args(["--warmup", "0", "--schedule", "constant", "--weight-decay", "0.01", "--clip", "1"]);
    command.args(["--alpha", "0.5", "--temperature", "2", "--checkpoint-every", "0", "--precision", precision]);
    command.args(["--recompute", &recompute.to_string()]);
    support::succeed(&mut command);
    let records = metrics_of(&out);
    (dir, records)
}

/// What PyTorch's run reports.
pub fn trajectory() -> Vec<Reference> {
    let text = std::fs::read_to_string(case("trajectory.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Largest relative differences over the trajectory: loss, kd_loss, ce_loss, grad_norm.
fn differences(records: &[StepRecord]) -> [f64; 4] {
    let reference = trajectory();
    assert_eq!(records.len(), reference.len());
    let mut worst = [0.0f64; 4];
    for (record, reference) in records.iter().zip(&reference) {
        let pairs = [
            (record.loss, reference.loss),
            (record.kd_loss, reference.kd_loss),
            (record.ce_loss, reference.ce_loss),
            (record.grad_norm, reference.grad_norm),
        ];
        for (worst, (found, expected)) in worst.iter_mut().zip(pairs) {
            *worst = worst.max((found.unwrap() - expected).abs() / expected.abs());
        }
        assert!((record.lr - reference.lr).abs() < 1e-12);
    }
    worst
}

#[test]
fn every_step_in_fp32() {
    Recompute::ALL.into_iter().for_each(every_step_in_fp32_with);
}

fn every_step_in_fp32_with(recompute: Recompute) {
    let (dir, records) = run("fp32", recompute);
    let worst = differences(&records);
    assert!(worst.iter().all(|difference| *difference <= 2e-5), "{worst:?}");

    // The weights after the last step. Adam divides by the root of v, which amplifies rounding where a gradient is
    // nearly zero, as that of a key's bias is (2.6e-4 apart on an H200): a looser gate than the losses'.
    let bytes = std::fs::read(dir.path().join("out/student/model.safetensors")).unwrap();
    let expected = std::fs::read(case("final/model.safetensors")).unwrap();
    let (found, expected) = (SafeTensors::deserialize(&bytes).unwrap(), SafeTensors::deserialize(&expected).unwrap());
    assert_eq!(found.len(), expected.len());
    for (name, view) in expected.iter() {
        let distance = distance(&floats(found.tensor(name).unwrap().data()), &floats(view.data()));
        assert!(distance <= 5e-4, "{name}: {distance:e}");
    }
}

#[test]
fn every_step_in_bf16() {
    for recompute in Recompute::ALL {
        let worst = differences(&run("bf16", recompute).1);
        for (difference, (name, gate)) in
            worst.iter().zip([("loss", 1e-3), ("kd_loss", 3e-3), ("ce_loss", 1e-3), ("grad_norm", 1e-2)])
        {
            assert!(*difference <= gate, "{name}: {difference:e} > {gate:e}");
        }
    }
}

/// The micro-batch of a step of the case, from 0.
pub fn batch(step: usize) -> MicroBatch {
    let tokens = std::fs::read(case("tokens.bin")).unwrap();
    let ids: Vec<u32> = bytemuck::pod_collect_to_vec(&tokens);
    let rows: Vec<&[u32]> = ids.chunks_exact(SEQ_LEN + 1).skip(step * BATCH).take(BATCH).collect();
    MicroBatch::new(&rows, SEQ_LEN)
}

fn gradients_are_within(precision: Precision, gate: f64) {
    Recompute::ALL.into_iter().for_each(|recompute| gradients_are_within_with(precision, gate, recompute));
}

fn gradients_are_within_with(precision: Precision, gate: f64, recompute: Recompute) {
    let config = support::config(&case("teacher"), &case("student"), |options| {
        options.precision = Some(precision);
        options.recompute = Some(recompute);
        options.batch_size = Some(BATCH as u32);
        options.seq_len = Some(SEQ_LEN as u32);
    });
    let mut session = support::session(&config);
    let batch = batch(0);
    session.micro(&batch, 1.0 / batch.counted as f32, false).unwrap();
    let expected = std::fs::read(case("step0.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    for parameter in session.plan().student.weights.parameters.list.clone() {
        let found = floats(&session.gradient(&parameter).unwrap());
        let view = expected.tensor(&format!("grad.{}", parameter.name)).unwrap();
        let distance = distance(&found, &floats(view.data()));
        assert!(distance <= gate, "{}: {distance:e} > {gate:e}", parameter.name);
    }
}

#[test]
fn every_gradient_in_fp32() {
    gradients_are_within(Precision::Fp32, 2e-5);
}

#[test]
fn every_gradient_in_bf16() {
    gradients_are_within(Precision::Bf16, 6e-2);
}

#[test]
fn logits_of_both_models_in_fp32() {
    let expected = std::fs::read(case("step0.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    for role in ["student", "teacher"] {
        let view = expected.tensor(&format!("{role}_logits")).unwrap();
        let wanted = floats(view.data());
        let columns = wanted.len() / SEQ_LEN;
        let found = logits(&case(role));
        let vocab = found.len() / SEQ_LEN;
        // The reference holds the student's columns of the wider teacher.
        let found: Vec<f32> = found.chunks(vocab).flat_map(|row| row[..columns].to_vec()).collect();
        let distance = distance(&found, &wanted);
        assert!(distance <= 2e-5, "{role}: {distance:e}");
    }
}

/// Logits of the first sequence under a model, fp32.
fn logits(model: &std::path::Path) -> Vec<f32> {
    let batch = batch(0);
    support::logits(model, &batch.ids[..SEQ_LEN])
}
