//! Teachers with experts: the bits of a run whoever computes it, those of a row beside others, and what is refused.

use crate::golden_weights;
use crate::ranks::assert_same;
use crate::support::prelude::*;
use crate::teacher_cache::fill;

const SHAPE: &str = "--batch-size 1 --seq-len 48 --grad-accum 4 --lr 1e-3 --steps 2 --precision bf16 --untrained";

fn case() -> Case {
    Case::golden("made-moe")
}

#[test]
fn ranks_and_a_cached_teacher_give_one_set_of_weights() {
    skip_if!(is_on_gpu());
    let case = case();
    let run = |out: &str, arguments: &str| {
        case.distill(out, [SHAPE, "--packing none --replicas 4", arguments]).succeeds();
    };
    run("one", "");
    run("two", "--gpus 2");
    assert_same(&case.path("two"), &case.path("one"), "2");
    fill(&case, "cache", ["--precision bf16 --seq-len 48 --batch-size", "3"]).succeeds();
    run("cached", "--teacher-cache cache");
    assert!(case.bits("cached") == case.bits("one"));
    run("parts", "--steps 1");
    run("parts", "--resume");
    assert!(case.bits("parts") == case.bits("one"));
}

/// A token's experts have other rows beside it, and more or fewer tiles.
#[test]
fn a_row_scores_the_same_beside_any_others() {
    for case in ["made-moe", "made-qwen35-moe"].map(Case::golden) {
        let row = |(index, length): (u32, u32)| {
            let ids: Vec<u32> = (0..length).map(|token| (7 * token + 13 * index) % 256).collect();
            serde_json::json!({ "input_ids": ids }).to_string() + "\n"
        };
        let rows: String = (0..).zip([2, 30, 5, 48, 17, 2, 33, 40]).map(row).collect();
        case.write("rows.jsonl", rows);
        for precision in ["fp32", "bf16"] {
            let score = |batch: &str| {
                let line = "eval --model golden/teacher --data rows.jsonl --seq-len 48 --untrained --json --batch-size";
                let printed = case.run([line, batch, "--precision", precision]).succeeds();
                let value: Value = serde_json::from_str(&printed).expect("a score");
                (value["nll"].to_string(), value["tokens"].to_string())
            };
            let alone = score("1");
            assert!(["2", "8"].iter().all(|batch| score(batch) == alone), "{precision}: {alone:?}");
        }
    }
}

#[test]
fn every_token_that_is_written_has_the_logits_of_the_forward_pass() {
    for case in ["made-moe", "made-qwen35-moe"].map(Case::golden) {
        let line = "selftest --model golden/teacher --precision bf16 --tokens 200 --seq-len 40 --rows 5";
        let [printed, _] = case.run(line).says();
        assert!(printed.contains(": 0 differ"), "{printed}");
    }
}

/// Compares the divergence of int8 from bf16, of one teacher, with that of a float64 model, which rounds where kernels
/// round (`rounded.py teacher`). Without rotations the model has 60 % of it, without roundings a fifth.
#[test]
fn experts_compute_in_int8() {
    let case = golden_weights::placed(&fixture("experts-int8"));
    let line = "eval compare --untrained --json --model golden/teacher --data golden/tokens.bin --seq-len 48";
    let compared = case.run([line, "--batch-size 8 --against bf16 --format int8"]).json();
    let found = compared["measured"]["kl_mean"].as_f64().unwrap_or_else(|| panic!("{compared}"));
    let expected = case.json("golden/int8/teacher.json")["kl"].as_f64().unwrap();
    eprintln!("KL of int8 {found:.3e}, of the model {expected:.3e}");
    assert!((found / expected - 1.0).abs() <= 0.05, "{found:e}, {expected:e} of the model");
}

/// 48 tokens choose three experts of 16: 144 rows, of which each expert may have a tile that is not full.
#[test]
fn a_plan_says_how_many_tiles_experts_take() {
    let case = case();
    let line = "plan --teacher golden/teacher --student golden/student --batch-size 1 --seq-len 48 --device sim";
    let said = case.run(line).succeeds();
    assert!(said.contains("\nexperts: 144 rows a layer, in at most 17 tiles of 128\n"), "{said}");
    let expected = serde_json::json!([{ "rows": 144, "most_tiles": 17, "rows_of_a_tile": 128, "at_a_time": null }]);
    assert_eq!(case.run([line, "--json"]).json()["experts"], expected);
}

/// Each of 48 tokens chooses three of 16 experts.
#[test]
fn a_run_says_how_its_first_batch_divides_among_experts() {
    let case = case();
    let said = case.distill("out", [SHAPE, "--packing none"]).succeeds();
    let rows = &case.record("out")["teacher_score"]["experts"];
    let [least, most] = ["least", "most"].map(|field| rows[field].as_u64().unwrap());
    assert!((rows["rows"].as_u64(), rows["experts"].as_u64()) == (Some(144), Some(16)), "{rows}");
    assert!(least < 9 && 9 < most && most <= 48, "{rows}");
    let text = format!("{least} to {most} of 144 each, 9 on average, in the last layer");
    assert!(said.contains(&format!("rows of an expert in the first batch: {text}\n")), "{said}");
    assert!(case.text("out/report.html").contains(&format!("<td>{text}</td>")));
}

#[test]
fn experts_do_not_train_and_carry_no_adapters() {
    let case = case();
    let line = "--data golden/tokens.bin --out out --seq-len 8 --batch-size 1 --steps 1";
    for words in [
        "train --model golden/teacher",
        "train --model golden/teacher --lora-rank 4",
        "distill --teacher golden/teacher --student golden/teacher --allow-identical",
    ] {
        case.run([words, line]).fails(2, "error: experts do not train, and carry no adapters");
        assert!(!case.has("out"), "{words}");
    }
}

#[test]
fn models_that_nothing_here_computes_are_refused_by_name() {
    let case = case();
    let config = "golden/teacher/config.json";
    let before = case.json(config);
    let refused = |field: &str, value: Value, reason: &str| {
        case.change(config, |json| json[field] = value);
        case.run("eval --model golden/teacher --data golden/tokens.bin --seq-len 8").fails(5, reason);
        case.write(config, before.to_string());
    };
    refused("mlp_only_layers", serde_json::json!([1]), "mlp_only_layers = [1]: layers are all of one kind");
    refused("num_experts_per_tok", 17.into(), "num_experts_per_tok is 17, and num_experts 16");
    refused("num_local_experts", 20.into(), "model.layers.0.mlp.experts.16.gate_proj.weight is missing");
    refused("num_local_experts", 12.into(), "model.layers.0.mlp.experts.12.down_proj.weight is not expected");
    refused("moe_intermediate_size", 32.into(), "model.layers.0.mlp.experts.0.gate_proj.weight is [24, 128]");
}
