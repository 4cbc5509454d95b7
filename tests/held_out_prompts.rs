//! Held-out prompts, which the student completes to be scored: the same bits however and wherever it does.

use std::fs;
use std::process::Command;

use precast::run::sample::SampleRecord;
use precast::run::step::HeldOutRecord;
use serde_json::json;

use crate::on_policy::{case, results};
use crate::support::{
    Case, fail, is_sim, metrics_of, run_record, skipped, succeed, texts, token_file, tokenizer, with_tensor,
};

/// A run of four steps on rows of ids.
fn run(case: &Case, (out, held_out): (&str, &str), arguments: &[&str]) -> Command {
    let mut command =
        crate::support::distill(&case.teacher, &case.student, &case.path("prompts.jsonl"), &case.path(out));
    command.args(["--batch-size", "2", "--seq-len", "24", "--grad-accum", "4", "--lr", "1e-2"]);
    command.args(["--steps", "4", "--eval-every", "2", "--beta", "1", "--alpha", "1", "--temperature", "1"]);
    command.arg("--eval-data").arg(case.path(held_out)).args(arguments);
    command
}

/// Seven prompts of one to five words.
fn prompts(case: &Case) {
    let words: Vec<String> = (10..96).map(|number| format!("w{number}")).collect();
    for model in [&case.teacher, &case.student] {
        fs::write(model.join("tokenizer.json"), tokenizer(&words.join(" ")).to_string()).unwrap();
    }
    let row = |at: usize| json!({"prompt": words[at * 11..at * 11 + 1 + at * 3 % 5].join(" ")}).to_string() + "\n";
    fs::write(case.path("held-out.jsonl"), (0..7).map(row).collect::<String>()).unwrap();
}

fn scores(case: &Case, out: &str) -> Vec<HeldOutRecord> {
    metrics_of(&case.path(out)).into_iter().filter_map(|record| record.held_out).collect()
}

#[test]
fn completions_are_scored_alike_in_any_slots_parts_and_ranks() {
    let case = case();
    prompts(&case);
    for (name, how) in [("data", &["--precision", "bf16"][..]), ("own", &["--on-policy", "--precision", "fp32"])] {
        let out = |more: &str| format!("{name}-{more}");
        let with = |more: &str, arguments: &[&str]| {
            let of_all = ["--max-tokens", "9", "--replicas", "4", "--final", "both", "--checkpoint-every", "2"];
            succeed(&mut run(&case, (&out(more), "held-out.jsonl"), &[how, &of_all, arguments].concat()))
        };
        with("one", &[]);
        with("few", &["--rollout-slots", "2"]);
        with("parts", &["--steps", "2"]);
        with("parts", &["--resume"]);
        let mut others = vec!["few", "parts"];
        if !skipped(!is_sim(), "ranks are of simulated GPUs") {
            with("2", &["--gpus", "2"]);
            with("4", &["--gpus", "4"]);
            others.extend(["2", "4"]);
        }
        let one = results(&case.path(out("one")));
        for other in others {
            assert!(results(&case.path(out(other))) == one, "{name}, {other}");
        }
        let scores = scores(&case, &out("one"));
        // Seven completions of nine tokens at most, some of which end by themselves.
        assert!(scores.len() == 2 && scores.iter().all(|score| (7..63).contains(&score.eval_tokens)), "{scores:?}");
        assert_ne!(scores[0].eval_kd_loss, scores[1].eval_kd_loss);
    }
    // Longer ones do not compare with these: the best step is one of those after them.
    let longer = ["--precision", "bf16", "--max-tokens", "10", "--replicas", "4", "--steps", "6", "--resume"];
    let output = run(&case, ("data-one", "held-out.jsonl"), &longer).output().unwrap();
    let (_, stderr) = texts(&output);
    let said = "--eval-data is of other tokens: the best checkpoint is that of the steps after 4";
    assert!(output.status.success() && stderr.contains(said), "{stderr}");
}

/// A run says of completions what it says of the same tokens as data, to the last bit, and trains the same.
#[test]
fn the_loss_of_completions_is_that_of_the_same_tokens() {
    let case = case();
    token_file(case.dir.path(), "held-out.bin", 25 * 3, 96);
    for (name, how) in [("data", &["--precision", "bf16"][..]), ("own", &["--on-policy", "--precision", "fp32"])] {
        let prompts = [how, &["--max-tokens", "9", "--prompt-tokens", "5"]].concat();
        succeed(&mut run(&case, (name, "held-out.bin"), &prompts));
        let samples: Vec<SampleRecord> =
            serde_json::from_value(run_record(&case.path(name))["samples"].clone()).unwrap();
        let row = |SampleRecord { prompt, completion, reference, .. }: &SampleRecord| {
            let ids = |text: &str| text.split(' ').map(|id| id.parse().unwrap()).collect::<Vec<i64>>();
            let (prompt, completion) = (ids(prompt), ids(completion));
            assert_eq!((prompt.len(), reference.as_str()), (5, ""));
            let labels: Vec<i64> = prompt.iter().map(|_| -100).chain(completion.clone()).collect();
            let ids = [prompt, completion].concat();
            json!({"input_ids": ids, "labels": labels}).to_string() + "\n"
        };
        fs::write(case.path("written.jsonl"), samples.iter().map(row).collect::<String>()).unwrap();
        let again = format!("{name}-again");
        let how = if name == "own" { [how, &["--max-tokens", "9"]].concat() } else { how.to_vec() };
        succeed(&mut run(&case, (&again, "written.jsonl"), &how));
        let [completed, read] = [name, &again].map(|out| scores(&case, out).pop().unwrap());
        assert_eq!(completed, read, "{name}");
        assert!(results(&case.path(name)).0 == results(&case.path(&again)).0, "{name}: an evaluation changes steps");
    }
}

#[test]
fn a_token_that_cannot_be_drawn_is_named_by_its_place() {
    let mut case = case();
    prompts(&case);
    let tensor = "model.layers.0.input_layernorm.weight";
    let broken = with_tensor(&case, "student", "broken", tensor, |index, was| if index == 0 { f32::MAX } else { was });
    case.student = broken;
    // Prompts of one token both.
    for (name, how, place) in [("own", &["--on-policy"][..], "step 1"), ("data", &["--eval-every", "1"], "--eval-data")]
    {
        let with = [how, &["--max-tokens", "9", "--precision", "bf16"]].concat();
        let message = fail(&mut run(&case, (name, "held-out.jsonl"), &with), 1);
        let said = format!("error: {place}: sequence 0 at position 1: a logit is not finite");
        assert!(message.contains(&said), "{message}");
    }
}

#[test]
fn completions_of_nothing_are_refused() {
    let case = case();
    prompts(&case);
    let message = |held_out: &str, arguments: &[&str], exit_code: i32| {
        fail(&mut run(&case, ("none", held_out), arguments), exit_code)
    };
    let alone = message("held-out.jsonl", &[], 5);
    assert!(alone.contains("held-out.jsonl: no column `completion`") && alone.contains("--max-tokens"), "{alone}");
    let completed = message("prompts.jsonl", &["--max-tokens", "9"], 2);
    assert!(completed.contains("--eval-data has no prompts alone"), "{completed}");
    let held_out = case.path("held-out.jsonl");
    let mixed = message("prompts.jsonl", &["--max-tokens", "9", "--eval-data", held_out.to_str().unwrap()], 5);
    assert!(mixed.contains("prompts.jsonl has rows of input_ids and labels with what is behind"), "{mixed}");
    let long = message("data.bin", &["--max-tokens", "20", "--prompt-tokens", "5"], 5);
    assert!(long.contains("every prompt is too long"), "{long}");
    let group = message("held-out.jsonl", &["--group-size", "2"], 2);
    assert!(group.contains("--group-size is of completions that the student writes: give --on-policy"), "{group}");
    let blas = message("held-out.jsonl", &["--max-tokens", "9", "--gemm", "cublas"], 2);
    assert!(blas.contains("completions with --gemm cublas"), "{blas}");
    let no_data = fail(&mut case.distill(&case.out(), &["--top-k", "3"]), 2);
    assert!(no_data.contains("--top-k is of completions that the student writes"), "{no_data}");
}
