//! The trajectory that PyTorch computed: every step's losses and norm, every gradient, the logits, the result.

use std::path::{Path, PathBuf};
use std::process::Command;

use precast::device::session::Session;
use precast::inputs::data::{Batches, Chunk, Corpus, Files, MicroBatch, Order, Packing, Reader, Streams};
use precast::run::step::StepRecord;
use precast_kernels::abi::MASKED_TOKEN;
use precast_plan::{Precision, Recompute};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::golden_weights::{self, Models};
use crate::support::{self, adapter_gradient, distance, distill, fixture, floats, metrics_of, train};

/// Sequences and tokens of the case.
const BATCH: usize = 4;
const SEQ_LEN: usize = 64;

/// Cases beside the first: without a teacher on masked rows, of other divergences, of other families, and of an adapter.
const OTHERS: [&str; 6] = ["sft-mask", "kl-reverse", "jsd-half", "qwen3-tied", "llama3-rope", "lora-qv"];

/// What a case says of its run.
#[derive(Deserialize)]
#[allow(non_snake_case)]
pub struct Settings {
    pub T: Option<f32>,
    pub alpha: Option<f32>,
    pub beta: Option<f32>,
    pub lr: f64,
    pub wd: f32,
    pub clip: f32,
    pub B: u32,
    pub S: u32,
    pub accum: u32,
    pub steps: u64,
    pub warmup: u64,
    pub sched: String,
    /// Of a student that learns from what it writes.
    pub options: Option<String>,
}

#[derive(Deserialize)]
pub struct Reference {
    pub loss: f64,
    pub kd_loss: f64,
    pub ce_loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
    pub tokens: Option<u64>,
    /// Standard error of the mean of log s - log t over the tokens that were drawn.
    pub log_ratio_error: Option<f64>,
    /// Standard deviations over the values above, where `rounded.py` has measured them.
    #[serde(default)]
    spread: Spread,
}

/// Of a step's values, relative to them.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Spread {
    loss: f64,
    kd_loss: f64,
    ce_loss: f64,
    grad_norm: f64,
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

pub fn settings(case: &Path) -> Settings {
    serde_json::from_str(&std::fs::read_to_string(case.join("case.json")).unwrap()).unwrap()
}

fn data(case: &Path) -> PathBuf {
    let rows = case.join("rows.jsonl");
    if rows.exists() { rows } else { case.join("tokens.bin") }
}

/// Trains a case with the settings that it names.
pub fn run_case(case: &Path, precision: &str) -> Vec<StepRecord> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let models = Models::of(case);
    let mut command = match models.teacher() {
        Some(teacher) => distill(&teacher, &models.student(), &data(case), &out),
        None => train(&models.student(), &data(case), &out),
    };
    if let Some(adapter) = models.adapter() {
        command.arg("--adapter").arg(adapter);
    }
    command.args(["--precision", precision]);
    support::succeed(as_settings_say(&mut command, &settings(case)));
    metrics_of(&out)
}

/// The sequences of each step of a case.
pub fn steps(case: &Path) -> Vec<Vec<Chunk>> {
    let (settings, data) = (settings(case), data(case));
    let bytes = std::fs::read(&data).unwrap();
    let sequences: Vec<Chunk> = if data.ends_with("rows.jsonl") {
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(row).collect()
    } else {
        let ids: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
        ids.chunks_exact(settings.S as usize + 1).map(Chunk::plain).collect()
    };
    sequences.chunks((settings.B * settings.accum) as usize).map(<[Chunk]>::to_vec).collect()
}

fn row(line: &[u8]) -> Chunk {
    #[derive(Deserialize)]
    struct Row {
        input_ids: Vec<u32>,
        labels: Vec<i64>,
    }
    let Row { input_ids, labels } = serde_json::from_slice(line).unwrap();
    let labels = labels.into_iter().map(|label| u32::try_from(label).unwrap_or(MASKED_TOKEN));
    Chunk { ids: input_ids, labels: Some(labels.collect()) }
}

/// Gives a run the options of a case.
pub fn as_settings_say<'c>(command: &'c mut Command, settings: &Settings) -> &'c mut Command {
    let mut give = |option: &str, value: &dyn std::fmt::Display| {
        command.arg(option).arg(value.to_string());
    };
    let of_teacher = [("--alpha", settings.alpha), ("--temperature", settings.T), ("--beta", settings.beta)];
    of_teacher.iter().for_each(|(option, value)| value.iter().for_each(|value| give(option, value)));
    give("--steps", &settings.steps);
    give("--batch-size", &settings.B);
    give("--seq-len", &settings.S);
    give("--grad-accum", &settings.accum);
    give("--lr", &settings.lr);
    give("--warmup", &settings.warmup);
    give("--schedule", &settings.sched);
    give("--weight-decay", &settings.wd);
    give("--clip", &settings.clip);
    give("--checkpoint-every", &0);
    command
}

/// What PyTorch's run reports.
pub fn trajectory_of(case: &Path) -> Vec<Reference> {
    let text = std::fs::read_to_string(case.join("trajectory.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Largest relative differences over the trajectory: loss, kd_loss, ce_loss, grad_norm.
pub fn differences(records: &[StepRecord], reference: &[Reference]) -> [f64; 4] {
    assert_eq!(records.len(), reference.len());
    let mut worst = [0.0f64; 4];
    for (record, reference) in records.iter().zip(reference) {
        let pairs = [
            (record.loss, reference.loss),
            (record.kd_loss, reference.kd_loss),
            (record.ce_loss, reference.ce_loss),
            (record.grad_norm, reference.grad_norm),
        ];
        for (worst, (found, expected)) in worst.iter_mut().zip(pairs) {
            // Without a teacher the divergence is 0.
            *worst = worst.max((found.unwrap() - expected).abs() / expected.abs().max(1e-12));
        }
        assert!((record.lr - reference.lr).abs() < 1e-12);
        assert!(reference.tokens.is_none_or(|tokens| tokens == record.tokens));
    }
    worst
}

#[test]
fn every_step_in_fp32() {
    Recompute::ALL.into_iter().for_each(every_step_in_fp32_with);
}

fn every_step_in_fp32_with(recompute: Recompute) {
    let (dir, records) = run("fp32", recompute);
    let worst = differences(&records, &trajectory_of(&case(".")));
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
        within_bf16("qwen2-tied", &run("bf16", recompute).1, &trajectory_of(&case(".")));
    }
}

/// A step whose norm is ill-conditioned: the standard deviation that roundings of bf16's size give it, by `make.py spread`; by
/// `rounded.py spread` it is 1.4e-2. That of every other step of the case is below 1e-3. Whatever is rounded where, one run in three
/// is off by more than 1e-2 there.
const SENSITIVE: (&str, usize, f64) = ("qwen3-tied", 15, 1.1e-2);

pub fn within_bf16(case: &str, records: &[StepRecord], reference: &[Reference]) {
    assert_eq!(records.len(), reference.len(), "{case}");
    // All of the loss is the divergence then, and as far off: in float64 with the roundings of bf16, `jsd-half` comes to 9.6e-4 to
    // 1.07e-3 by `rounded.py spread`.
    let of_loss = if settings(&fixture("golden").join(case)).alpha == Some(1.0) { 3e-3 } else { 1e-3 };
    for (index, (record, reference)) in records.iter().zip(reference).enumerate() {
        let (of, step, spread) = SENSITIVE;
        let norm = if (of, step) == (case, index + 1) { 3.0 * spread } else { 1e-2 };
        let Spread { loss, kd_loss, ce_loss, grad_norm } = reference.spread;
        let gates = [
            ("loss", of_loss, loss),
            ("kd_loss", 3e-3, kd_loss),
            ("ce_loss", 1e-3, ce_loss),
            ("grad_norm", norm, grad_norm),
        ];
        let gates = gates.map(|(name, gate, spread)| (name, f64::max(gate, 3.0 * spread)));
        let worst = differences(std::slice::from_ref(record), std::slice::from_ref(reference));
        for (difference, (name, gate)) in worst.into_iter().zip(gates) {
            assert!(difference <= gate, "{case}, step {}, {name}: {difference:e} > {gate:e}", index + 1);
        }
    }
    assert_eq!(records.len(), reference.len(), "{case}");
}

#[test]
fn every_step_of_every_other_case_in_fp32() {
    for name in OTHERS {
        let case = fixture("golden").join(name);
        let worst = differences(&run_case(&case, "fp32"), &trajectory_of(&case));
        assert!(worst.iter().all(|difference| *difference <= 2e-5), "{name}: {worst:?}");
    }
}

#[test]
fn every_step_of_every_other_case_in_bf16() {
    for name in OTHERS {
        let case = fixture("golden").join(name);
        within_bf16(name, &run_case(&case, "bf16"), &trajectory_of(&case));
    }
}

/// Gradients of a step of two micro-batches whose rows count for unequal numbers of tokens.
#[test]
fn every_gradient_of_masked_rows_without_a_teacher() {
    let case = fixture("golden/sft-mask");
    let settings = settings(&case);
    for (precision, gate) in [(Precision::Fp32, 2e-5), (Precision::Bf16, 6e-2)] {
        let config = support::config_alone(&case.join("student"), |options| {
            options.arithmetic.precision = precision;
            options.shape.batch_size = settings.B;
            options.shape.seq_len = settings.S;
        });
        let files = Files::open(&[data(&case)], None).unwrap();
        let corpus = Corpus::new(files, settings.S, Packing::Stream, Reader { vocab: 512, ..Reader::default() });
        let stream = Streams::start(std::sync::Arc::new(corpus.unwrap()));
        let step = Batches::new(stream, settings.B, settings.S, Order::File).step(settings.accum).unwrap();
        let micros: Vec<MicroBatch> = (0..step.micros()).map(|micro| step.micro_batch(micro)).collect();
        assert_ne!(micros[0].counted, micros[1].counted);
        let scale = 1.0 / micros.iter().map(|micro| micro.counted as f32).sum::<f32>();
        let mut session = support::session(&config);
        for (index, micro) in micros.iter().enumerate() {
            session.micro(micro, scale, index).unwrap();
        }
        compare_gradients(&mut session, &case, gate);
    }
}

/// Gradients of the first step of an adapter, and the adapter after the last one.
#[test]
fn every_gradient_of_an_adapter() {
    let case = fixture("golden/lora-qv");
    let settings = settings(&case);
    let expected = std::fs::read(case.join("step0.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    for recompute in Recompute::ALL {
        for (precision, gate) in [(Precision::Fp32, 2e-5), (Precision::Bf16, 6e-2)] {
            let config = support::config(&case.join("teacher"), &case.join("student"), |options| {
                options.arithmetic.precision = precision;
                options.arithmetic.recompute = recompute;
                options.shape.batch_size = settings.B;
                options.shape.seq_len = settings.S;
                options.adapting.adapter = Some(case.join("adapter"));
            });
            let mut session = support::session(&config);
            let batch = batch(&case, 0);
            session.micro(&batch, 1.0 / batch.counted as f32, 0).unwrap();
            let parameters = session.adapter_parameters();
            assert_eq!(parameters.len(), 8, "A and B on two projections of two layers");
            for parameter in parameters {
                let module = parameter.projection.strip_suffix(".weight").unwrap();
                let name = format!("grad.base_model.model.{module}.lora_{:?}.default.weight", parameter.factor);
                let view = expected.tensor(&name).unwrap();
                assert_eq!(view.shape(), parameter.shape.map(|dim| dim as usize));
                let distance = distance(&adapter_gradient(&mut session, &parameter), &floats(view.data()));
                assert!(distance <= gate, "{name}, {precision}, {recompute}: {distance:e} > {gate:e}");
            }
        }
    }
}

/// The micro-batch of a step of a case without accumulation, from 0.
pub fn batch(case: &Path, step: usize) -> MicroBatch {
    batch_of(case, step, settings(case).B as usize)
}

/// Of a step with so many rows in a batch.
pub fn batch_of(case: &Path, step: usize, rows: usize) -> MicroBatch {
    let seq_len = settings(case).S as usize;
    let ids: Vec<u32> = bytemuck::pod_collect_to_vec(&std::fs::read(case.join("tokens.bin")).unwrap());
    let rows: Vec<&[u32]> = ids.chunks_exact(seq_len + 1).skip(step * rows).take(rows).collect();
    MicroBatch::new(&rows, seq_len)
}

fn gradients_are_within(precision: Precision, gate: f64) {
    Recompute::ALL.into_iter().for_each(|recompute| gradients_are_within_with(precision, gate, recompute));
}

fn gradients_are_within_with(precision: Precision, gate: f64, recompute: Recompute) {
    let config = support::config(&case("teacher"), &case("student"), |options| {
        options.arithmetic.precision = precision;
        options.arithmetic.recompute = recompute;
        options.shape.batch_size = BATCH as u32;
        options.shape.seq_len = SEQ_LEN as u32;
    });
    let mut session = support::session(&config);
    let batch = batch(&case("."), 0);
    session.micro(&batch, 1.0 / batch.counted as f32, 0).unwrap();
    compare_gradients(&mut session, &case("."), gate);
}

/// Compares every gradient of the first step with PyTorch's.
pub fn compare_gradients(session: &mut Session, case: &Path, gate: f64) {
    let expected = std::fs::read(case.join("step0.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    for parameter in session.plan.student.weights.parameters.list.clone() {
        let found = floats(&session.read(session.trained_of(&parameter).grad).unwrap());
        let name = format!("grad.{}", parameter.name);
        let distance = distance_to(&name, &found, &expected.tensor(&name).unwrap());
        assert!(distance <= gate, "{name}: {distance:e} > {gate:e}");
    }
}

/// The relative distance of a tensor from one that a file holds, as it is or as its sums.
pub fn distance_to(name: &str, found: &[f32], kept: &TensorView) -> f64 {
    match kept.dtype() {
        Dtype::F64 => golden_weights::distance(name, found, &bytemuck::pod_collect_to_vec(kept.data())),
        _ => distance(found, &floats(kept.data())),
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

/// What PEFT computes with an adapter.
#[test]
fn logits_of_an_adapted_model_in_fp32() {
    let case = fixture("golden/lora-qv");
    let expected = std::fs::read(case.join("step0.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    let batch = batch(&case, 0);
    let ids = &batch.ids[..settings(&case).S as usize];
    let expected = floats(expected.tensor("student_logits").unwrap().data());
    let found = support::logits_adapted(&case.join("student"), Some(&case.join("adapter")), ids);
    assert!(distance(&found, &expected) <= 2e-5);
    let alone = support::logits(&case.join("student"), ids);
    assert!(distance(&alone, &expected) > 1e-2, "the adapter does nothing");
}

/// Logits of the first sequence under a model, fp32.
fn logits(model: &std::path::Path) -> Vec<f32> {
    let batch = batch(&case("."), 0);
    support::logits(model, &batch.ids[..SEQ_LEN])
}
