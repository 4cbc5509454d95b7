//! `precast smoke`: training works, nothing is loaded late, and the bits are the same, in one line for CI.

use std::process::Command;

use precast_kernels::Block;
use precast_plan::{Formats, ModelConfig};
use serde_json::Value;

use crate::gguf;
use crate::lora::{adapter, lora};
use crate::support::{bundle, device, is_sim, precast, random_model, tiny_config};

/// A smoke test at tiny shapes.
fn smoke(arguments: &[&str]) -> Command {
    let mut command = precast();
    command.args(["smoke", "--device", &device(), "--batch-size", "2", "--seq-len", "32"]).args(arguments);
    if let Some(bundle) = bundle() {
        command.arg("--bundle").arg(bundle);
    }
    command
}

const SHAPES: [&str; 4] = ["--teacher", "tests/models/wide.json", "--student", "tests/models/tiny.json"];

/// The line that it prints, its exit code and its message.
fn run(command: &mut Command) -> (Value, Option<i32>, String) {
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().count(), 1, "{printed}{}", String::from_utf8_lossy(&output.stderr));
    (serde_json::from_str(&printed).unwrap(), output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_student_learns_within_fifty_steps_and_twice_the_same() {
    for precision in ["fp32", "bf16", "int8"] {
        for recompute in [&[][..], &["--recompute"], &["--recompute", "blocks"]] {
            let (record, code, message) = run(smoke(&SHAPES).args(["--precision", precision]).args(recompute));
            assert_eq!(code, Some(0), "{record} {message}");
            assert!(record["ok"] == true && record["reason"].is_null() && record["bits_equal"] == true, "{record}");
            assert_eq!(record["loads_after_seal"], 0);
            // What was tested.
            assert_eq!((&record["precision"], &record["gemm"]), (&precision.into(), &"bundle".into()));
            assert_eq!((&record["teacher_format"], &record["adapter"]), (&"bf16".into(), &Value::Null));
            let losses: Vec<f64> = record["losses"].as_array().unwrap().iter().map(|l| l.as_f64().unwrap()).collect();
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
    let alone = ["--model", "tests/models/tiny.json", "--lora-rank", "4"];
    let shared = ["--teacher", "tests/models/tiny.json", "--student", "tests/models/tiny.json", "--lora-rank", "8"];
    let mut rates = Vec::new();
    for arguments in
        [&alone[..], &[&alone[..], &["--lora-targets", "q_proj,v_proj", "--lora-rslora"]].concat(), &shared]
    {
        let (record, code, message) = run(smoke(arguments).args(["--precision", "fp32"]));
        assert_eq!(
            (code, &record["ok"], &record["bits_equal"]),
            (Some(0), &true.into(), &true.into()),
            "{record} {message}"
        );
        rates.push(record["lr"].as_f64().unwrap());
    }
    // One over 8 times rank times scale, which is alpha / rank, or alpha / sqrt(rank) where alpha is twice the rank.
    let expected = [8.0, 16.0, 16.0].map(|width| 1.0 / (8.0 * width));
    assert!(rates.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9), "{rates:?}");
}

#[test]
fn an_adapter_that_is_there_learns_on_stored_weights() {
    let dir = tempfile::tempdir().unwrap();
    let config = ModelConfig::from_json(&tiny_config(&[("intermediate_size", 64.into())]).to_string()).unwrap();
    let model = gguf::write(dir.path(), "model.gguf", &config, &Formats::uniform(&config, Block::Q8_0), 3);
    let of = lora(4, 8.0, "q_proj,v_proj");
    let adapter = adapter(dir.path(), "adapter", &config, &of, 5).display().to_string();
    let arguments = ["--model", model.to_str().unwrap(), "--adapter", &adapter, "--student-format", "stored"];
    let (record, code, message) = run(&mut smoke(&arguments));
    assert_eq!((code, &record["bits_equal"]), (Some(0), &true.into()), "{record} {message}");
    assert!(record["adapter"].as_str().unwrap().starts_with(&format!("{adapter}: ")), "{record}");
    assert_eq!((&record["student_format"], &record["teacher_format"]), (&"stored".into(), &Value::Null));
}

#[test]
fn a_student_that_does_not_learn_is_a_failure_with_its_reason() {
    let (record, code, message) = run(smoke(&SHAPES).args(["--lr", "1e-9", "--steps", "10"]));
    assert_eq!(code, Some(1), "{record} {message}");
    let reason = record["reason"].as_str().unwrap();
    assert!(record["ok"] == false && reason.contains("of the first, at most 0.8 was expected"), "{record}");
    assert!(message.contains(&format!("error: smoke: {reason}")), "{message}");
    // Steps that blow up.
    let (record, code, _) = run(smoke(&SHAPES).args(["--lr", "1e30", "--steps", "10"]));
    assert_eq!((code, &record["ok"]), (Some(1), &Value::Bool(false)), "{record}");
    assert!(record["reason"].as_str().unwrap().contains("not finite"), "{record}");
}

#[test]
fn real_weights_are_trained_on_and_too_few_steps_are_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let student = random_model(dir.path(), "student", 7, &tiny_config(&[]));
    let mut command = smoke(&["--teacher", "tests/models/tiny.json", "--student", student.to_str().unwrap()]);
    let (record, code, message) = run(&mut command);
    assert_eq!((code, &record["ok"]), (Some(0), &Value::Bool(true)), "{record} {message}");
    let other = run(&mut smoke(&["--teacher", "tests/models/tiny.json", "--student", "tests/models/tiny.json"])).0;
    assert_ne!(record["losses"], other["losses"]);
    assert_eq!(smoke(&SHAPES).args(["--steps", "9"]).output().unwrap().status.code(), Some(2));
}
