//! A student that trains in int8: near what bf16 gives, and the same bits however it is computed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Case, metrics_of, run_record, succeed, train};

const INT8: [&str; 4] = ["--precision", "int8", "--checkpoint-every", "0"];

fn case() -> Case {
    Case::new(17 * 12)
}

/// A run of a few steps of the case, with a teacher.
fn run(case: &Case, name: &str, arguments: &[&str]) -> Vec<f64> {
    let mut command = case.distill(&case.path(name), &["--steps", "6", "--lr", "5e-3"]);
    succeed(command.args(arguments));
    losses(&case.path(name))
}

fn losses(out: &Path) -> Vec<f64> {
    metrics_of(out).iter().map(|step| step.loss.unwrap()).collect()
}

fn student(out: &Path) -> Vec<u8> {
    fs::read(out.join("student/model.safetensors")).unwrap()
}

#[test]
fn a_student_learns_what_it_learns_in_bf16_with_other_bits() {
    let case = case();
    let bf16 = run(&case, "bf16", &["--precision", "bf16", "--checkpoint-every", "0"]);
    let int8 = run(&case, "int8", &INT8);
    assert_eq!(run_record(&case.path("int8"))["config"]["precision"], "int8");
    assert_eq!(int8.len(), 6);
    assert!(int8[5] < int8[0] && bf16[5] < bf16[0], "{int8:?} {bf16:?}");
    for (step, (int8, bf16)) in int8.iter().zip(&bf16).enumerate() {
        assert!(int8 != bf16 && (int8 - bf16).abs() < 0.02 * bf16, "step {step}: {int8} {bf16}");
    }
    // And without a teacher.
    let alone = |precision: &str| {
        let out = case.path(format!("alone-{precision}"));
        let mut command: Command = train(&case.student, &case.data, &out);
        command.args(["--batch-size", "2", "--seq-len", "16", "--steps", "3", "--checkpoint-every", "0"]);
        succeed(command.args(["--precision", precision]));
        losses(&out)
    };
    let (int8, bf16) = (alone("int8"), alone("bf16"));
    assert!(int8.iter().zip(&bf16).all(|(a, b)| a != b && (a - b).abs() < 0.02 * b), "{int8:?} {bf16:?}");
}

#[test]
fn what_is_recomputed_changes_no_bit() {
    let case = case();
    let none = run(&case, "none", &INT8);
    for recompute in ["norms", "blocks"] {
        let out = format!("again-{recompute}");
        assert_eq!(run(&case, &out, &[&INT8[..], &["--recompute", recompute]].concat()), none, "{recompute}");
        assert!(student(&case.path(out)) == student(&case.path("none")), "{recompute}");
    }
}

#[test]
fn a_run_that_continues_is_the_same_run() {
    let case = case();
    let whole = run(&case, "whole", &INT8);
    let parts = ["--precision", "int8", "--checkpoint-every", "3"];
    succeed(case.distill(&case.path("parts"), &["--steps", "3", "--lr", "5e-3"]).args(parts));
    succeed(case.distill(&case.path("parts"), &["--steps", "6", "--lr", "5e-3", "--resume"]).args(parts));
    assert_eq!(losses(&case.path("parts")), whole);
    assert!(student(&case.path("parts")) == student(&case.path("whole")));
}
