//! Success means success: what has not done its work fails, and leaves nothing that looks done.

use precast::inputs::checkpoint::{Checkpoint, CheckpointError, ModelSource, Write, stored, write_model};
use precast_kernels::Dtype;
use precast_plan::{Parameter, Parameters};
use precast_system::files::Existing;

use crate::support::prelude::*;

#[test]
fn weights_that_are_not_finite_are_found_by_all_that_load_them() {
    let case = Case::new(17 * 4);
    let name = "model.layers.1.mlp.down_proj.weight";
    let planted = |to: &str, tensor: &str, at: usize, value: f32| {
        with_tensor(&case, "student", to, tensor, |index, was| if index == at { value } else { was });
    };
    planted("bad", name, 77, f32::NAN);
    planted("infinite", "model.norm.weight", 3, f32::NEG_INFINITY);
    // Finite as it is stored, infinite in the run's bf16.
    planted("large", "model.norm.weight", 3, f32::MAX);
    let run = |models: &str| case.distill("out", ["--steps 2", models]);
    for mut command in [
        run("--precision fp32 --teacher bad"),
        run("--precision fp32 --student bad"),
        run("--precision bf16 --student bad"),
        case.run("eval --batch-size 2 --seq-len 16 --model bad --data data.bin"),
        case.run("bench step --batch-size 2 --seq-len 16 --teacher bad --student student"),
        case.run("init --from bad --layers 0,1 --out out"),
    ] {
        command.fails(5, format!("bad: tensor {name} is NaN at element 77"));
        assert!(!case.has("out/student") && !case.has("out/config.json"), "{command:?}");
    }
    let norm = "tensor model.norm.weight is ";
    run("--precision fp32 --teacher infinite").fails(5, format!("{norm}-inf at element 3 (as f32)"));
    run("--precision bf16 --teacher large").fails(5, format!("{norm}inf at element 3 (as bf16)"));
}

#[test]
fn no_model_is_written_from_weights_that_are_not_finite() {
    let case = Case::empty();
    let model = Checkpoint::open(&case.model("model", 1, &[])).unwrap();
    let parameters = Parameters::new(model.config()).list;
    let student = ModelSource {
        config: &model.json,
        parameters: &parameters,
        dtype: stored(Dtype::F32),
        tokenizer_from: &[&model],
    };
    let out = case.path("below/out");
    let last = &parameters[parameters.len() - 1];
    let read = |parameter: &Parameter, write: &mut Write<'_>| {
        let mut values = vec![1.0f32; parameter.elems() as usize];
        if parameter.name == last.name {
            values[5] = f32::INFINITY;
        }
        write(bytemuck::cast_slice(&values))
    };
    let error: CheckpointError = write_model(&out, Existing::Keep, &student, read).unwrap_err();
    assert!(matches!(&error, CheckpointError::WouldNotBeFinite { what, .. } if what.tensor == last.name), "{error}");
    assert!(error.to_string().contains("is inf at element 5"), "{error}");
    let left = fs::read_dir(out.parent().unwrap()).map_or(0, Iterator::count);
    assert_eq!(left, 0, "something was left behind");
}

#[test]
fn a_model_that_guesses_fails_its_evaluation_unless_it_may() {
    let config = tiny_config(&[("initializer_range", 0.5.into())]);
    let case = Case::of([&config, &config], 17 * 8);
    let eval = |more: &str| case.run(["eval --batch-size 2 --seq-len 16 --data data.bin --model", more]);
    // ln 96.
    eval("teacher").fails(1, ["is no better than the 4.5643 of guessing", "--untrained"]);
    let printed = eval("teacher --untrained").succeeds();
    assert!(printed.starts_with("nll "), "{printed}");

    // Finite weights, and activations that are not.
    let largest = |index, was| if index == 0 { f32::MAX } else { was };
    with_tensor(&case, "teacher", "broken", "model.norm.weight", largest);
    eval("broken --untrained").fails(1, "not a number of nats");
}

#[test]
fn a_score_is_held_against_a_number_and_another_model() {
    let case = Case::golden("made-qwen2");
    // One that knows the golden case's tokens better than guessing: distilled on them.
    let trained = "--steps 12 --batch-size 4 --seq-len 64 --lr 1e-2 --alpha 0 --precision fp32 --checkpoint-every 0";
    case.distill("run", trained).succeeds();
    let (better, worse) = ("run/student", "golden/student");
    let eval =
        |more: &str| case.run(["eval --untrained --batch-size 2 --seq-len 16 --data golden/tokens.bin --model", more]);
    let below = |model: &str, baseline: &str| eval(&format!("{model} --json --below {baseline}"));
    let scores = below(better, worse).json();
    let [nll, other] = [&scores["nll"], &scores["below"]["nll"]].map(|nll| nll.as_f64().unwrap());
    assert!(nll < other && scores["below"]["model"] == worse, "{scores}");
    below(worse, better).fails(1, [format!("nll {other:.6}"), format!("{nll:.6}")]);
    below(better, better).fails(1, "");

    let perplexity = scores["perplexity"].as_f64().unwrap();
    let (above, under) = (perplexity + 0.01, perplexity - 0.01);
    eval(&format!("{better} --max-perplexity {above}")).succeeds();
    eval(&format!("{better} --max-perplexity {under}"))
        .fails(1, format!("{perplexity:.4} is above --max-perplexity {under}"));

    // A context that only one of them reaches cuts the text elsewhere.
    let mut config = case.json("golden/student/config.json");
    config["max_position_embeddings"] = 8.into();
    random_model(case.dir.path(), "short", 3, &config);
    below(better, "short").fails(5, "different tokens");
}

#[test]
fn a_selftest_that_checks_nothing_fails() {
    let case = Case::empty();
    let run = |arguments: &str| case.run(format!("selftest --device {} {arguments}", device()));
    skip_if!(!is_sim());
    case.write("whole", simulated(&[shape(&tiny_config(&[]))]));
    case.write("nothing", simulated(&[]));
    run("--bundle nothing").fails(3, "no code for simulated GPU");
    // What a comparison of the references with themselves is worth is said.
    let printed = run("--bundle whole --kernel rmsnorm.fwd").prints("no machine code");
    assert!(!printed.starts_with("0 "), "{printed}");
}

/// A run of tiny models on random tokens.
fn run(case: &Case, arguments: &str) -> Command {
    case.distill("out", ["--checkpoint-every 0", arguments])
}

/// How a run ended; it has failed and written no model.
fn failed(case: &Case) -> Value {
    let outcome = case.record("out")["outcome"].clone();
    let is_written = ["student", "adapter"].iter().any(|model| case.has(&format!("out/{model}")));
    assert!(outcome["status"] == "failed" && !is_written, "{outcome}");
    outcome
}

/// Updates of 1e-30 are lost in every weight; and the last line of a run that works says how large they were.
#[test]
fn a_run_that_changes_nothing_fails() {
    let case = Case::new(17 * 8);
    for (precision, more) in
        [("fp32", ""), ("bf16", "--checkpoint-every 1 --final best --eval-data data.bin --eval-every 1")]
    {
        run(&case, &format!("--steps 2 --lr 1e-30 --precision {precision} --overwrite {more}"))
            .fails(1, "error: nothing changed: ");
        assert!(failed(&case)["reason"].as_str().unwrap().ends_with("Raise --lr (1e-30)"));
        assert_eq!(case.record("out")["largest_update"], 0.0);
    }
    let update = |arguments: &str| {
        let printed = run(&case, &format!("--steps 2 --lr 1e-3 --precision fp32 --overwrite {arguments}")).succeeds();
        let largest = case.record("out")["largest_update"].as_f64().unwrap();
        let last = format!("update:  {largest:.2e}, the largest change of a weight");
        assert!(
            printed.trim_end().ends_with(&last) && case.text("out/run.log").trim_end().ends_with(&last),
            "{printed}"
        );
        largest
    };
    // AdamW's first steps are of the learning rate each.
    assert!((1e-3..3e-3).contains(&update("")), "{}", update(""));
    assert!((1e-3..3e-3).contains(&update("--lora-rank 2")), "{}", update("--lora-rank 2"));
}

#[test]
fn a_run_says_how_it_ended() {
    let case = Case::new(17 * 8);
    run(&case, "--steps 12 --precision fp32").succeeds();
    let (losses, outcome) = (case.losses("out"), &case.record("out")["outcome"]);
    let last = losses[7..].iter().sum::<f64>() / 5.0;
    assert_eq!(outcome["first_loss"].as_f64(), Some(losses[0]), "{outcome}");
    assert!((outcome["last_loss"].as_f64().unwrap() - last).abs() < 1e-12, "{outcome}");
    assert_eq!((&outcome["status"], outcome.get("reason")), (&"done".into(), None));
    assert_eq!((&outcome["steps_done"], &outcome["steps_skipped"]), (&12.into(), &0.into()));
    assert!(outcome["wall_s"].as_f64().unwrap() > 0.0, "{outcome}");
    assert!(case.text("out/report.html").contains("<td>outcome</td><td>done</td>"));
}

#[test]
fn a_run_whose_last_steps_were_skipped_writes_no_student() {
    let case = Case::new(17 * 8);
    // The first step throws the weights away; every later one is skipped.
    let message = run(&case, "--steps 4 --lr 1e30 --precision fp32").fails(1, "3 of the last 4 steps were skipped");
    let outcome = failed(&case);
    assert_eq!(outcome["steps_done"], 4);
    assert!(outcome["steps_skipped"].as_u64().unwrap() > 0, "{outcome}");
    assert!(message.contains(outcome["reason"].as_str().unwrap()), "{outcome}");
    assert!(case.has("out/report.html"));

    // More of the same end it before its last step.
    run(&case, "--steps 40 --lr 1e30 --precision fp32 --overwrite").fails(1, ["10 steps in a row", "--lr"]);
    failed(&case);
    let steps = case.metrics("out");
    let skipped = &steps[steps.len() - 10..];
    assert!(steps.len() < 40 && skipped.iter().all(|step| step.skipped && step.grad_norm.is_none()), "{steps:?}");
}

/// The only step's loss is finite and so are its gradients; what the update makes of the weights is not, in bf16.
#[test]
fn a_student_whose_last_update_overflows_is_not_written() {
    let case = Case::new(17 * 8);
    run(&case, "--steps 1 --lr 3.4e38 --weight-decay 0 --precision bf16")
        .fails(1, ["student is not written: tensor ", "inf at element"]);
    assert_eq!(case.names("out"), ["metrics.jsonl", "report.html", "run.json", "run.log"]);
    failed(&case);
}

#[test]
fn a_run_that_diverges_fails_and_its_student_has_another_name() {
    let case = Case::new(17 * 8);
    let diverges = "--steps 6 --lr 1 --checkpoint-every 6";
    run(&case, diverges).fails(1, ["the run diverged: the last ce_loss is ", "--lr 1, --warmup 0 and --clip 1"]);
    failed(&case);
    assert!(case.has("out/checkpoint-6"));
    let diverged = case.read("out/student.diverged/model.safetensors");
    run(&case, diverges).with("--resume --allow-divergence").succeeds();
    assert_eq!(case.weights("out"), diverged);
    assert!(case.record("out")["outcome"]["status"] == "done" && !case.has("out/student.diverged"));
}

#[test]
fn a_run_without_a_gradient_fails_and_writes_nothing() {
    let case = Case::new(17 * 8);
    case.distill("first", "--steps 1 --lora-rank 2").succeeds();
    // Above 0 as it is written, and 0 as it is computed with.
    case.change("first/adapter/adapter_config.json", |json| json["lora_alpha"] = 1e-320.into());
    let said = ["is exactly 0 in each of the first 10 steps", "the adapter's scale is 0 in f32: raise lora_alpha"];
    run(&case, "--steps 40 --adapter first/adapter").fails(1, said);
    failed(&case);
}

#[test]
fn a_head_of_zeros_is_refused_and_other_zeros_are_noted() {
    let case = Case::new(17 * 9);
    let zero = |to: &str, tensor: &str| {
        with_tensor(&case, "student", to, tensor, |_, _| 0.0);
        case.distill(format!("out-{to}"), ["--steps 1 --student", to])
    };
    let tensor = "model.norm.weight";
    zero("headless", tensor).fails(5, format!("tensor {tensor} is wholly zero"));
    let tensor = "model.layers.0.mlp.down_proj.weight";
    let [_, stderr] = zero("expanded", tensor).says();
    let noted = format!("note: tensors of the student that are wholly zero: 1, {tensor}\n");
    assert!(stderr.contains(&noted), "{stderr}");
}
