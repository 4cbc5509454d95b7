//! Models with layers of the gated delta rule: the bits of a run whoever computes it and however often it is stopped,
//! those of rows beside others, int8, adapters, and what is written.

use safetensors::{Dtype, SafeTensors};

use crate::ranks::assert_same;
use crate::support::prelude::*;
use crate::teacher_cache::fill;

const SHAPE: &str = "--batch-size 1 --seq-len 150 --grad-accum 4 --lr 1e-3 --steps 2 --packing none --precision bf16";

fn case() -> Case {
    Case::golden("made-qwen35")
}

#[test]
fn ranks_recomputing_and_a_cached_teacher_give_one_set_of_weights() {
    skip_if!(is_on_gpu());
    let case = case();
    let run = |out: &str, arguments: &str| {
        case.distill(out, [SHAPE, "--replicas 4 --untrained", arguments]).succeeds();
    };
    run("one", "");
    for count in ["2", "4"] {
        run(count, &format!("--gpus {count}"));
        assert_same(&case.path(count), &case.path("one"), count);
    }
    fill(&case, "cache", ["--precision bf16 --seq-len 150 --batch-size", "3"]).succeeds();
    for (out, arguments) in [("blocks", "--recompute blocks"), ("cached", "--teacher-cache cache")] {
        run(out, arguments);
        assert!(case.bits(out) == case.bits("one"), "{out}");
    }
}

#[test]
fn a_run_continues_to_the_same_bits() {
    let case = case();
    let run = |out: &str, arguments: &str| case.distill(out, [SHAPE, "--untrained", arguments]).succeeds();
    run("whole", "");
    run("parts", "--steps 1");
    run("parts", "--resume");
    assert!(case.bits("whole") == case.bits("parts"));
}

/// Rows of fewer tokens than a convolution reads, of one chunk, and of more: the sum over tokens is each a sum of its
/// row alone.
#[test]
fn a_row_scores_the_same_beside_any_others() {
    let case = case();
    let row = |(index, length): (u32, u32)| {
        let ids: Vec<u32> = (0..length).map(|token| (7 * token + 13 * index) % 256).collect();
        serde_json::json!({ "input_ids": ids }).to_string() + "\n"
    };
    let rows: String = (0..).zip([2, 3, 5, 150, 64, 65, 66, 129, 17, 2, 90]).map(row).collect();
    case.write("rows.jsonl", rows);
    for precision in ["fp32", "bf16"] {
        let score = |batch: &str| {
            let line = format!(
                "eval --model golden/student --data rows.jsonl --seq-len 150 --untrained --json --batch-size {batch}"
            );
            let printed = case.run([&*line, "--precision", precision]).succeeds();
            let value: Value = serde_json::from_str(&printed).expect("a score");
            (value["nll"].to_string(), value["tokens"].to_string())
        };
        let alone = score("1");
        assert!(["2", "5"].iter().all(|batch| score(batch) == alone), "{precision}: {alone:?}");
    }
}

/// `A_log` and `dt_bias` act over whole chunks: in bf16 a state would have decayed by a percent too much.
#[test]
fn decays_are_written_in_fp32_beside_weights_in_bf16() {
    let case = case();
    case.distill("out", [SHAPE, "--untrained"]).succeeds();
    let bytes = case.weights("out");
    let written = SafeTensors::deserialize(&bytes).expect("safetensors");
    for (name, tensor) in written.tensors() {
        let is_decay = name.ends_with(".A_log") || name.ends_with(".dt_bias");
        assert_eq!(tensor.dtype(), if is_decay { Dtype::F32 } else { Dtype::BF16 }, "{name}");
        let is_rounded = tensor.data().chunks(4).all(|value| value[..2] == [0, 0]);
        assert!(!(is_decay && is_rounded), "{name} has been in bf16");
    }
    // Another run begins with what was written.
    case.run("eval --model out/student --data golden/tokens.bin --seq-len 150 --untrained").succeeds();
}

#[test]
fn adapters_train_on_every_projection_of_both_kinds_of_layers() {
    let case = case();
    case.train("out", [SHAPE, "--lora-rank 4"]).succeeds();
    let config = case.json("out/adapter/adapter_config.json");
    let targets = config["target_modules"].to_string();
    for module in ["q_proj", "down_proj", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"] {
        assert!(targets.contains(&format!("\"{module}\"")), "{targets}");
    }
    // Merged, they are a model that computes what base and adapter do.
    case.run("merge --model golden/student --adapter out/adapter --out merged").succeeds();
    let score = |model: &str| {
        let line = format!("eval {model} --data golden/tokens.bin --seq-len 150 --untrained --json --precision fp32");
        let printed = case.run(&*line).succeeds();
        serde_json::from_str::<Value>(&printed).expect("a score")["nll"].as_f64().expect("a number")
    };
    let [apart, merged] = ["--model golden/student --adapter out/adapter", "--model merged"].map(score);
    assert!((apart / merged - 1.0).abs() < 1e-6, "{apart} {merged}");
}

#[test]
fn both_models_compute_in_int8() {
    skip_if!(lacks_kernels());
    let case = Case::empty();
    let config = serde_json::json!({
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 64, "vocab_size": 96,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "max_position_embeddings": 256,
        "layer_types": ["linear_attention", "full_attention"], "tie_word_embeddings": true, "initializer_range": 0.1,
    });
    for (name, seed) in [("teacher", 1), ("student", 2)] {
        random_model(case.dir.path(), name, seed, &config);
    }
    token_file(case.dir.path(), "data.bin", 4000, 96);
    let run = |out: &str, arguments: &str| {
        let words = "--batch-size 2 --seq-len 130 --lr 1e-3 --steps 2 --packing none --untrained --recompute";
        case.distill(out, [words, arguments]).succeeds();
        case.losses(out)
    };
    let exact = run("bf16", "none --precision bf16");
    let int8 = run("int8", "none --precision int8 --teacher-format int8 --max-teacher-kl none");
    assert!(exact.iter().zip(&int8).all(|(exact, int8)| exact != int8 && (exact / int8 - 1.0).abs() < 1e-2));
    run("blocks", "blocks --precision int8 --teacher-format int8 --max-teacher-kl none");
    assert!(case.bits("blocks") == case.bits("int8"));
}

/// Completions that end in a later chunk than they begin in, in two numbers of slots.
#[test]
fn a_student_scores_what_it_has_drawn_and_draws_the_same_in_any_slots() {
    let case = case();
    let prompt = |index: u32| (0..50 + 9 * index).map(|at| (11 * index + 7 * at) % 256).collect::<Vec<_>>();
    case.write(
        "prompts.jsonl",
        (0..4).map(|index| json!({"input_ids": prompt(index)}).to_string() + "\n").collect::<String>(),
    );
    let run = |out: &str, slots: &str| {
        let words = "--batch-size 1 --seq-len 150 --grad-accum 2 --steps 1 --untrained --precision bf16";
        let drawn = "--on-policy --max-tokens 60 --data prompts.jsonl --rollout-slots";
        case.distill(out, [words, drawn, slots]).succeeds();
        let record = &case.results(out).1[0];
        assert_eq!(record.rollouts.as_ref().expect("completions").mismatch, 0, "{slots}");
    };
    run("one", "1");
    run("four", "4");
    assert!(case.bits("one") == case.bits("four"));
}

#[test]
fn a_projection_that_no_layer_has_is_refused_by_name() {
    let other = Case::new(400);
    other
        .train("out", "--steps 1 --lora-rank 4 --lora-targets q_proj,in_proj_z")
        .fails(5, "no layer of LlamaForCausalLM has in_proj_z");
}
