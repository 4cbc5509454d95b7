//! `precast smoke`: training works, nothing is loaded late, and the bits are the same, in one line for CI.

use precast_kernels::Block;
use precast_plan::Formats;

use crate::gguf;
use crate::lora::{adapter, lora};
use crate::support::Texts;
use crate::support::prelude::*;

/// A smoke test at tiny shapes: the line that it prints, its exit code and its message.
fn smoke(case: &Case, arguments: impl Texts) -> (Value, Option<i32>, String) {
    let mut command = case.run("smoke --batch-size 2 --seq-len 32");
    let (code, printed, message) = command.args(device_and_bundle()).with(arguments).ends();
    assert_eq!(printed.lines().count(), 1, "{printed}{message}");
    (serde_json::from_str(&printed).unwrap(), code, message)
}

/// The configurations of two models.
fn case() -> Case {
    let case = Case::empty();
    for name in ["tiny", "wide"] {
        case.write(&format!("{name}.json"), model_config(name).to_string());
    }
    case
}

const SHAPES: &str = "--teacher wide.json --student tiny.json";

#[test]
fn a_student_learns_within_fifty_steps_and_twice_the_same() {
    let case = case();
    for precision in ["fp32", "bf16", "int8"] {
        for recompute in ["", "--recompute", "--recompute blocks"] {
            let (record, code, message) = smoke(&case, [SHAPES, "--precision", precision, recompute]);
            assert_eq!(code, Some(0), "{record} {message}");
            assert!(record["ok"] == true && record["reason"].is_null() && record["bits_equal"] == true, "{record}");
            assert_eq!(record["loads_after_seal"], 0);
            // What was tested.
            assert_eq!((&record["precision"], &record["gemm"]), (&precision.into(), &"bundle".into()));
            assert_eq!((&record["teacher_format"], &record["adapter"]), (&"bf16".into(), &Value::Null));
            let losses: Vec<f64> = list(&record["losses"]);
            let mean = |losses: &[f64]| losses.iter().sum::<f64>() / 5.0;
            assert_eq!(losses.len(), 50);
            let ratio = mean(&losses[45..]) / mean(&losses[..5]);
            assert!((ratio - record["ratio"].as_f64().unwrap()).abs() < 1e-12 && ratio <= 0.8, "{record}");
            assert!(record["kernels"].as_u64().unwrap() > 20 && record["step_ms"].as_f64().unwrap() > 0.0, "{record}");
            assert_eq!(record["bundle"].as_str().map(str::len), Some(64));
            assert_eq!(record["arch"] == "sim", is_sim());
        }
    }
}

#[test]
fn an_adapter_learns_and_twice_the_same() {
    let case = case();
    let alone = "--model tiny.json --lora-rank 4";
    let shared = "--teacher tiny.json --student tiny.json --lora-rank 8";
    let rates = [[alone, ""], [alone, "--lora-targets q_proj,v_proj --lora-rslora"], [shared, ""]].map(|adapter| {
        let (record, code, message) = smoke(&case, ["--precision fp32", adapter[0], adapter[1]]);
        assert_eq!(code, Some(0), "{record} {message}");
        assert!(record["ok"] == true && record["bits_equal"] == true, "{record}");
        record["lr"].as_f64().unwrap()
    });
    // One over 8 times rank times scale, which is alpha / rank, or alpha / sqrt(rank) where alpha is twice the rank.
    let expected = [8.0, 16.0, 16.0].map(|width| 1.0 / (8.0 * width));
    assert!(rates.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9), "{rates:?}");
}

#[test]
fn an_adapter_that_is_there_learns_on_stored_weights() {
    let case = Case::empty();
    let config = shape(&tiny_config(&[("intermediate_size", 64.into())]));
    gguf::write(case.dir.path(), "model.gguf", &config, &Formats::uniform(&config, Block::Q8_0), 3);
    adapter(case.dir.path(), "adapter", &config, &lora(4, 8.0, "q_proj,v_proj"), 5);
    let (record, code, message) = smoke(&case, "--model model.gguf --adapter adapter --student-format stored");
    assert_eq!((code, &record["bits_equal"]), (Some(0), &true.into()), "{record} {message}");
    assert!(record["adapter"].as_str().unwrap().starts_with("adapter: "), "{record}");
    assert_eq!((&record["student_format"], &record["teacher_format"]), (&"stored".into(), &Value::Null));
}

#[test]
fn a_student_that_does_not_learn_is_a_failure_with_its_reason() {
    let case = case();
    let (record, code, message) = smoke(&case, [SHAPES, "--lr 1e-9 --steps 10"]);
    assert_eq!(code, Some(1), "{record} {message}");
    let reason = record["reason"].as_str().unwrap();
    assert!(record["ok"] == false && reason.contains("of the first, at most 0.8 was expected"), "{record}");
    assert!(message.contains(&format!("error: smoke: {reason}")), "{message}");
    // Steps that blow up.
    let (record, code, _) = smoke(&case, [SHAPES, "--lr 1e30 --steps 10"]);
    assert_eq!((code, &record["ok"]), (Some(1), &Value::Bool(false)), "{record}");
    assert!(record["reason"].as_str().unwrap().contains("not finite"), "{record}");
}

#[test]
fn real_weights_are_trained_on_and_too_few_steps_refused() {
    let case = case();
    case.model("student", 7, &[]);
    let (record, code, message) = smoke(&case, "--teacher tiny.json --student student");
    assert_eq!((code, &record["ok"]), (Some(0), &Value::Bool(true)), "{record} {message}");
    let other = smoke(&case, "--teacher tiny.json --student tiny.json").0;
    assert_ne!(record["losses"], other["losses"]);
    case.run(["smoke --steps 9", SHAPES]).fails(2, "");
}
