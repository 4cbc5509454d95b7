//! A teacher that knows nothing of the data: said, recorded and refused before the first step, which it changes nothing
//! of.

use precast::inputs::data::MicroBatch;

use crate::support::prelude::*;

/// A case with a teacher, `sure`, whose head is so large that it is sure of the wrong tokens.
fn case() -> Case {
    let case = Case::new(17 * 64);
    with_tensor(&case, "teacher", "sure", "model.embed_tokens.weight", |_, value| 60.0 * value);
    case
}

/// A run that it teaches.
fn taught_wrong(case: &Case, out: &str, arguments: &str) -> Command {
    case.distill(out, ["--teacher sure --steps 1 --precision fp32", arguments])
}

fn score(case: &Case, out: &str) -> Value {
    case.record(out)["teacher_score"].clone()
}

#[test]
fn a_teacher_far_worse_than_guessing_is_refused_at_the_start() {
    let case = case();
    let run = |out: &str, size: &str| taught_wrong(&case, out, size);
    let said = "nats a token over 512 tokens, worse by more than a nat than the 4.5643 of guessing";
    run("out", "--batch-size 32").fails(5, [said, "--untrained allows it"]);
    assert!(!case.has("out/run.json"));
    // What is there stays: the run would replace it.
    case.distill("out", "--steps 1").succeeds();
    let before = case.read("out/run.json");
    run("out", "--batch-size 32 --overwrite").fails(5, "");
    assert_eq!(case.read("out/run.json"), before);
    // So many tokens are those of several micro-batches.
    run("accumulated", "--grad-accum 16").fails(5, said);
    // Fewer may be a hard text.
    let [stdout, stderr] = run("few", "--grad-accum 15").says();
    let warning = "warning: the teacher predicts the first batch";
    assert!(stdout.contains("teacher, on the first batch: cross entropy "), "{stdout}");
    assert!(stderr.lines().any(|line| line.starts_with(warning)), "{stderr}");
    let of_few = score(&case, "few");
    assert_eq!(of_few["tokens"], 480);
    let warning = of_few["warning"].as_str().unwrap();
    assert!(warning.starts_with("the teacher predicts the first batch no better"), "{of_few}");
    assert!(of_few["nll"].as_f64().unwrap() > 1.0 + of_few["uniform_nll"].as_f64().unwrap());
}

#[test]
fn a_teacher_that_may_be_untrained_teaches_with_a_warning() {
    let case = case();
    let run = |more: &str| taught_wrong(&case, "out", &format!("--batch-size 32 {more}"));
    run("--untrained").succeeds();
    let of_start = score(&case, "out");
    assert!(of_start["warning"].is_string(), "{of_start}");
    // A run that continues has the score of its start, and refuses alike.
    run("--steps 2 --resume").fails(5, "worse by more than a nat");
    run("--steps 2 --resume --untrained").succeeds();
    assert_eq!(score(&case, "out"), of_start);
    // One that an earlier version began has none: it is that of the first step still.
    case.change("out/run.json", |record| _ = record.as_object_mut().unwrap().remove("teacher_score"));
    run("--steps 3 --resume --untrained").succeeds();
    assert_eq!(score(&case, "out"), of_start);
}

#[test]
fn the_score_of_a_teacher_is_that_of_eval() {
    let case = Case::new(17 * 32);
    case.distill("out", "--steps 1 --batch-size 32 --precision fp32 --untrained").succeeds();
    let score = score(&case, "out");
    let eval = case.run("eval --json --untrained --seq-len 16 --data data.bin --model teacher").json();
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
        let gradients = gradients(&mut session);
        let parameters = session.plan.student.weights.parameters.list.clone();
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
    let case = Case::golden("made-qwen2");
    let how = "--batch-size 8 --seq-len 64 --steps 1 --checkpoint-every 0 --precision fp32";
    case.distill("out", how).succeeds();
    let score = score(&case, "out");
    let worse = score["nll"].as_f64().unwrap() - score["uniform_nll"].as_f64().unwrap();
    assert!((0.1..0.6).contains(&worse) && score["tokens"] == 512 && score["warning"].is_string(), "{score}");
}

/// Every rank has the score of all, and ends as all do.
#[test]
fn ranks_score_a_teacher_alike() {
    skip_if!(is_on_gpu());
    let case = case();
    let run = |out: &str, more: &str| taught_wrong(&case, out, &format!("--replicas 2 --grad-accum 20 {more}"));
    run("two", "--gpus 2").fails(5, "worse by more than a nat");
    assert!(!case.has("two/run.json"));
    run("two", "--gpus 2 --untrained").succeeds();
    run("one", "--untrained").succeeds();
    assert_eq!(score(&case, "two"), score(&case, "one"));
}
