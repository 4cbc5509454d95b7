//! `precast eval --teacher-cache`: how far a student is from a teacher that was computed before.

use precast_kernels::Block;
use precast_plan::Formats;

use crate::gguf;
use crate::support::Texts;
use crate::support::prelude::*;
use crate::teacher_cache::{case_of_masked_rows, fill};

/// Distance of two sums in f32, as a share of them.
const ROUNDING: f64 = 2e-6;

/// `precast eval` of a model beside a cache.
fn measured(case: &Case, line: impl Texts) -> Value {
    case.run("eval --untrained --json --teacher-cache cache").with(line).json()
}

fn numbers<const N: usize>(measured: &Value, names: [&str; N]) -> [f64; N] {
    names.map(|name| measured[name].as_f64().unwrap_or_else(|| panic!("{name}: {measured}")))
}

/// The held-out losses of a run whose update is too small to change a weight.
fn of_run(case: &Case, words: &str) -> [f64; 3] {
    let still = "--steps 1 --lr 1e-30 --alpha 0.5 --temperature 1 --beta 0 --checkpoint-every 0 --overwrite";
    // One that changes nothing fails at its end.
    let _ = case.distill("still", ["--teacher-cache cache --eval-data rows.jsonl", still, words]).ends();
    let losses = case.metrics("still").pop().unwrap().held_out.unwrap();
    [losses.eval_kd_loss.unwrap(), losses.eval_ce_loss.unwrap(), losses.eval_tokens as f64]
}

/// The teacher has more tokens than its student; of held-out rows some tokens count.
#[test]
fn a_student_is_as_far_from_its_teacher_as_a_run_says() {
    let mut case = case_of_masked_rows();
    let wide = [("num_hidden_layers", 1.into()), ("vocab_size", 104.into())];
    (case.teacher, case.data) = (case.model("wide", 3, &wide), case.path("data.bin"));
    for precision in ["fp32", "bf16"] {
        let _ = fs::remove_dir_all(case.path("cache"));
        fill(&case, "cache", ["--student student --eval-data rows.jsonl --precision", precision]).succeeds();
        let run = |words: &str| of_run(&case, &format!("--precision {precision} {words}"));
        case.distill(
            "first",
            ["--lora-rank 4 --steps 3 --lr 0.05 --checkpoint-every 0 --overwrite", "--precision", precision],
        )
        .succeeds();
        let mut all = Vec::new();
        for adapter in ["", "--adapter first/adapter"] {
            let found = measured(&case, ["--model student --data rows.jsonl --batch-size 3", adapter]);
            let found = numbers(&found, ["kl_mean", "nll", "tokens"]);
            let expected = run(adapter);
            let far = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > ROUNDING * b);
            assert!(!far && found[0] > 0.01, "{precision} {adapter}: {found:?} {expected:?}");
            all.push(found);
        }
        assert!((all[0][0] - all[1][0]).abs() > 1e-3, "{all:?}");
    }
}

/// Hidden states of other batches, and a head of its own: the same bits, which are no distance apart.
#[test]
fn a_model_is_at_no_distance_from_its_own_cache() {
    let case = case_of_masked_rows();
    for precision in ["bf16", "fp32"] {
        let _ = fs::remove_dir_all(case.path("cache"));
        let filled = fill(&case, "cache", ["--json --precision", precision]).json();
        let found = measured(&case, "--model teacher --data rows.jsonl --batch-size 4");
        assert_eq!(numbers(&found, ["kl_mean", "kl_max", "agreement"]), [0.0, 0.0, 1.0], "{precision}");
        assert_eq!(found["perplexity"], found["teacher_perplexity"]);
        assert_eq!(found["cache_sha256"], filled["sha256"]);
    }
    let eval = "eval --model teacher --teacher-cache cache --data rows.jsonl";
    let said = case.run([eval, "--untrained --max-perplexity 1.5"]).fails(1, "is above --max-perplexity 1.5");
    assert!(said.contains("teacher  cache/teacher"), "{said}");
    with_tensor(&case, "teacher", "broken", "model.layers.0.input_layernorm.weight", first_is_huge);
    let of_broken = "predictions of broken are no numbers on 54 tokens: its weights are broken";
    case.run("eval --untrained --model broken --teacher-cache cache --data rows.jsonl").fails(1, of_broken);
    case.run("cache --teacher broken --data rows.jsonl --seq-len 16 --precision fp32 --out of-broken").succeeds();
    let of_teacher = "predictions of the teacher in of-broken are no numbers on 54 tokens: the teacher is broken";
    case.run("eval --untrained --model teacher --teacher-cache of-broken --data rows.jsonl").fails(1, of_teacher);
    let [said, _] = case.run([eval, "--untrained"]).says();
    assert!(
        said.starts_with("KL 0.00000 nats a token from the teacher, at most 0.0000; the same first choice of 100.00 %"),
        "{said}"
    );
}

/// A model in blocks, rounded to 8 bits, is as far from its cache as from itself in bf16.
#[test]
fn a_form_is_as_far_from_a_cache_as_from_the_exact_one() {
    let mut case = Case::new(17 * 4);
    let config = shape(&model_config("blocks"));
    case.teacher = gguf::write(case.dir.path(), "model.gguf", &config, &Formats::uniform(&config, Block::Q4_K), 3);
    // One row a document, as runs have rows of 17 tokens.
    let ids: Vec<u32> = bytemuck::pod_collect_to_vec(&case.read("data.bin"));
    let row = |ids: &[u32]| json!({ "input_ids": ids }).to_string() + "\n";
    case.write("rows.jsonl", ids.chunks(17).map(row).collect::<String>());
    fill(&case, "cache", "--data rows.jsonl").succeeds();
    let eval = "--model model.gguf --data rows.jsonl --seq-len 16";
    let names = ["kl_mean", "kl_max", "agreement", "perplexity"];
    let int8 = measured(&case, [eval, "--format int8"]);
    let against = case.run(["eval compare --untrained --json --format int8 --against bf16", eval]).json();
    assert_eq!(numbers(&int8, names), numbers(&against["measured"], names));
    assert_eq!(int8["teacher_perplexity"], against["measured"]["exact_perplexity"]);
    assert!(int8["kl_mean"].as_f64().unwrap() > 0.0);
    let stored = measured(&case, [eval, "--format stored"]);
    assert_eq!(numbers(&stored, ["kl_mean", "kl_max", "agreement"]), [0.0, 0.0, 1.0]);
}
