//! A teacher that knows nothing of the data: said, recorded and refused before the first step, which it changes nothing of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::inputs::data::MicroBatch;
use serde_json::{Value, json};

use crate::golden;
use crate::support::{
    Case, config, distill, fail, floats, is_sim, on_device, precast, run_record, session, skipped, succeed, texts,
    with_tensor,
};

/// A teacher whose head is so large that it is sure of the wrong tokens.
fn sure(case: &Case) -> PathBuf {
    with_tensor(case, &case.teacher, "sure", "model.embed_tokens.weight", |_, value| 60.0 * value)
}

impl Case {
    /// A run with a teacher that is sure of the wrong tokens.
    fn taught_wrong(&self, out: &str, arguments: &[&str]) -> Command {
        let mut command = distill(&sure(self), &self.student, &self.data, &self.path(out));
        command.args(["--seq-len", "16", "--steps", "1", "--precision", "fp32"]).args(arguments);
        command
    }
}

fn score(out: &Path) -> Value {
    run_record(out)["teacher_score"].clone()
}

const ENOUGH: [&str; 2] = ["--batch-size", "32"];

#[test]
fn a_teacher_that_is_far_worse_than_guessing_is_refused_before_the_first_step() {
    let case = Case::new(17 * 64);
    let message = fail(&mut case.taught_wrong("out", &ENOUGH), 5);
    let said = "nats a token over 512 tokens, worse by more than a nat than the 4.5643 of guessing";
    assert!(message.contains(said) && message.contains("--untrained allows it"), "{message}");
    assert!(!case.out().join("run.json").exists());
    // What is there stays: the run would replace it.
    succeed(&mut case.distill(&case.out(), &["--steps", "1"]));
    let before = fs::read(case.path("out/run.json")).unwrap();
    fail(case.taught_wrong("out", &ENOUGH).arg("--overwrite"), 5);
    assert_eq!(fs::read(case.path("out/run.json")).unwrap(), before);
    // So many tokens are those of several micro-batches.
    let accumulated = ["--batch-size", "2", "--grad-accum", "16"];
    assert!(fail(&mut case.taught_wrong("accumulated", &accumulated), 5).contains(said));
    // Fewer may be a hard text.
    let few = case.taught_wrong("few", &["--batch-size", "2", "--grad-accum", "15"]).output().unwrap();
    let (stdout, stderr) = texts(&few);
    let (line, warning) =
        ("teacher, on the first batch: cross entropy ", "warning: the teacher predicts the first batch");
    let warned = stderr.lines().any(|line| line.starts_with(warning));
    assert!(few.status.success() && stdout.contains(line) && warned, "{stdout}{stderr}");
    let of_few = score(&case.path("few"));
    assert_eq!(of_few["tokens"], 480);
    assert!(
        of_few["warning"].as_str().unwrap().starts_with("the teacher predicts the first batch no better"),
        "{of_few}"
    );
    assert!(of_few["nll"].as_f64().unwrap() > 1.0 + of_few["uniform_nll"].as_f64().unwrap());
}

#[test]
fn a_teacher_that_may_be_untrained_teaches_with_a_warning() {
    let case = Case::new(17 * 64);
    let run = |more: &[&str]| case.taught_wrong("out", &[&ENOUGH, more].concat());
    succeed(&mut run(&["--untrained"]));
    let of_start = score(&case.out());
    assert!(of_start["warning"].is_string(), "{of_start}");
    // A run that continues has the score of its start, and refuses alike.
    let message = fail(&mut run(&["--steps", "2", "--resume"]), 5);
    assert!(message.contains("worse by more than a nat"), "{message}");
    succeed(&mut run(&["--steps", "2", "--resume", "--untrained"]));
    assert_eq!(score(&case.out()), of_start);
    // One that an earlier version began has none: it is that of the first step still.
    let mut record = run_record(&case.out());
    record.as_object_mut().unwrap().remove("teacher_score");
    fs::write(case.path("out/run.json"), record.to_string()).unwrap();
    succeed(&mut run(&["--steps", "3", "--resume", "--untrained"]));
    assert_eq!(score(&case.out()), of_start);
}

#[test]
fn the_score_of_a_teacher_is_that_of_eval() {
    let case = Case::new(17 * 32);
    succeed(
        &mut case.distill(&case.out(), &["--steps", "1", "--batch-size", "32", "--precision", "fp32", "--untrained"]),
    );
    let score = score(&case.out());
    let mut eval = precast();
    eval.args(["eval", "--json", "--untrained", "--seq-len", "16", "--data"]).arg(&case.data);
    let eval: Value = serde_json::from_str(&succeed(eval.arg("--model").arg(&case.teacher).args(on_device()))).unwrap();
    let [found, expected] = [&score, &eval].map(|of| of["nll"].as_f64().unwrap());
    assert!((found / expected - 1.0).abs() < 1e-6, "{score} {eval}");
    assert_eq!([&score["uniform_nll"], &score["tokens"]], [&eval["uniform_nll"], &json!(512)]);
}

/// Scoring a teacher leaves no trace in the step after it.
#[test]
fn a_score_changes_no_bit_of_the_first_step() {
    let case = Case::new(17 * 4);
    let config = config(&case.teacher, &case.student, |_| ());
    let rows: Vec<Vec<u32>> = (0..2).map(|row| (0..17).map(|at| (31 * row + 7 * at) % 96).collect()).collect();
    let batch = MicroBatch::new(&[&rows[0], &rows[1]], 16);
    let step = |scored: bool| {
        let mut session = session(&config);
        if scored {
            let once = session.teacher_loss(std::slice::from_ref(&batch), 1.0 / 32.0).unwrap();
            let twice = session.teacher_loss(&[batch.clone(), batch.clone()], 1.0 / 64.0).unwrap();
            assert!((once / twice - 1.0).abs() < 1e-6 && once > 4.0, "{once} {twice}");
        }
        session.micro(&batch, 1.0 / 32.0, 0).unwrap();
        let parameters = session.plan.student.weights.parameters.list.clone();
        let gradients: Vec<Vec<f32>> = parameters
            .iter()
            .map(|parameter| floats(&session.read(session.trained_of(parameter).grad).unwrap()))
            .collect();
        let ticket = session.update(0, 1e-3).unwrap();
        let metrics = session.metrics(ticket).unwrap().0;
        let masters: Vec<Vec<u8>> = parameters.iter().map(|parameter| session.master(parameter).unwrap()).collect();
        (gradients, bytemuck::bytes_of(&metrics).to_vec(), masters)
    };
    assert!(step(true) == step(false));
}

/// Golden teachers have random weights, and are 0.28 to 0.41 nats worse than guessing.
#[test]
fn golden_teachers_need_no_flag() {
    let dir = tempfile::tempdir().unwrap();
    let case = golden::case;
    let out = dir.path().join("out");
    let mut command = distill(&case("teacher"), &case("student"), &case("tokens.bin"), &out);
    command.args(["--batch-size", "8", "--seq-len", "64", "--steps", "1", "--checkpoint-every", "0"]);
    succeed(command.args(["--precision", "fp32"]));
    let score = score(&out);
    let worse = score["nll"].as_f64().unwrap() - score["uniform_nll"].as_f64().unwrap();
    assert!((0.1..0.6).contains(&worse) && score["tokens"] == 512 && score["warning"].is_string(), "{score}");
}

/// Every rank has the score of all, and ends as all do.
#[test]
fn ranks_score_a_teacher_alike() {
    if skipped(!is_sim(), "it is of simulated GPUs") {
        return;
    }
    let case = Case::new(17 * 64);
    let run = |out: &str, more: &[&str]| {
        let mut command = case.taught_wrong(out, &["--batch-size", "2", "--replicas", "2", "--grad-accum", "20"]);
        command.args(more);
        command
    };
    let message = fail(&mut run("two", &["--gpus", "2"]), 5);
    assert!(message.contains("worse by more than a nat"), "{message}");
    assert!(!case.path("two/run.json").exists());
    succeed(&mut run("two", &["--gpus", "2", "--untrained"]));
    succeed(&mut run("one", &["--untrained"]));
    assert_eq!(score(&case.path("two")), score(&case.path("one")));
}
