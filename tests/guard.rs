//! What a run in int8 says of its gradients beside bf16's, and what goes with `--precision int8`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Case, distill, fail, metrics_of, precast, run_record, succeed, train, with_tensor};

const INT8: [&str; 4] = ["--precision", "int8", "--checkpoint-every", "0"];

fn case() -> Case {
    Case::new(17 * 20)
}

fn student(out: &Path) -> Vec<u8> {
    fs::read(out.join("student/model.safetensors")).unwrap()
}

/// The steps whose gradients were compared.
fn compared(out: &Path) -> Vec<u64> {
    metrics_of(out).iter().filter(|record| record.guard.is_some()).map(|record| record.step).collect()
}

#[test]
fn a_run_says_how_far_its_gradients_are_from_bf16s() {
    let case = case();
    let printed =
        succeed(&mut case.distill(&case.out(), &[&INT8[..], &["--steps", "5", "--guard-every", "3"]].concat()));
    assert_eq!(compared(&case.out()), [1, 3, 5]);
    assert_eq!(printed.matches("  guard layer ").count(), 3, "{printed}");
    let run = run_record(&case.out());
    assert_eq!(run["config"]["guard_every"], 3);
    let guard = &run["guard"];
    assert_eq!((&guard["steps"], &guard["within"], &guard["beyond"]), (&json!(3), &json!(true), &json!(0)), "{guard}");
    assert_eq!(guard["last"]["step"], 5);
    for record in metrics_of(&case.out()).iter().filter_map(|record| record.guard.as_ref()) {
        assert_eq!(record.0.len(), 2, "a layer each");
        for layer in &record.0 {
            // Near bf16's, and not bf16's.
            let (cosine, norm) = (layer.cosine.unwrap(), layer.norm.unwrap());
            assert!((0.97..1.0 - 1e-7).contains(&cosine) && (0.9..1.1).contains(&norm), "{layer:?}");
        }
    }
    let report = fs::read_to_string(case.out().join("report.html")).unwrap();
    assert!(report.contains("<td>guard</td><td>3 of 3 steps within the bound") && report.contains(">layer 1</text>"));
    assert!(run["outcome"].get("warning").is_none());
}

#[test]
fn training_does_not_depend_on_who_watches() {
    let case = case();
    let run = |out: &str, every: &str| {
        let arguments = ["--steps", "4", "--guard-every", every, "--grad-accum", "2"];
        succeed(&mut case.distill(&case.path(out), &[&INT8[..], &arguments].concat()));
        metrics_of(&case.path(out)).iter().map(|record| (record.loss, record.grad_norm)).collect::<Vec<_>>()
    };
    let (never, always) = (run("never", "0"), run("always", "1"));
    assert_eq!(never, always);
    assert!(student(&case.path("never")) == student(&case.path("always")));
    assert_eq!((compared(&case.path("never")), compared(&case.path("always"))), (vec![], vec![1, 2, 3, 4]));
    assert!(run_record(&case.path("never")).get("guard").is_none());
}

#[test]
fn a_run_that_continues_knows_what_was_compared_before() {
    let case = case();
    let run = |out: &Path, more: &[&str]| {
        let arguments = ["--precision", "int8", "--checkpoint-every", "2"];
        case.distill(out, &[&arguments[..], more].concat())
    };
    succeed(&mut run(&case.path("whole"), &["--steps", "4", "--guard-every", "2"]));
    succeed(&mut run(&case.out(), &["--steps", "2", "--guard-every", "1"]));
    let refused = fail(&mut case.distill(&case.out(), &["--resume", "--steps", "4", "--precision", "bf16"]), 2);
    assert!(refused.contains("precision was int8, is bf16"), "{refused}");
    succeed(&mut run(&case.out(), &["--resume", "--steps", "4", "--guard-every", "2"]));
    assert!(student(&case.out()) == student(&case.path("whole")));
    assert_eq!((compared(&case.out()), &run_record(&case.out())["guard"]["steps"]), (vec![1, 2, 4], &json!(3)));
}

/// A column of outliers that nothing is multiplied by: exact gradients are as they were, and 8 bits hold nothing else.
#[test]
fn a_run_beyond_the_bound_says_so_and_does_its_work() {
    let case = case();
    let (hidden, intermediate) = (32, 48);
    let at = |name: &str| format!("model.layers.1.mlp.{name}.weight");
    let quiet =
        with_tensor(&case, &case.student, "a", &at("up_proj"), |index, was| if index < hidden { 0.0 } else { was });
    let planted =
        with_tensor(
            &case,
            &quiet,
            "b",
            &at("down_proj"),
            |index, was| {
                if index % intermediate == 0 { 30_000.0 } else { was }
            },
        );
    let run = |out: &str, precision: &str| {
        let mut command = distill(&case.teacher, &planted, &case.data, &case.path(out));
        command.args([
            "--batch-size",
            "2",
            "--seq-len",
            "16",
            "--steps",
            "2",
            "--checkpoint-every",
            "0",
            "--lr",
            "1e-6",
        ]);
        let output = command.args(["--precision", precision]).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, printed, noted) = run("int8", "int8");
    assert_eq!(code, Some(0), "{noted}");
    assert!(printed.contains(" BEYOND the bound"), "{printed}");
    assert!(noted.contains("warning: int8's gradients left the guard's bound"), "{noted}");
    let record = run_record(&case.path("int8"));
    assert_eq!((&record["guard"]["within"], &record["outcome"]["status"]), (&json!(false), &json!("done")));
    let warning = record["outcome"]["warning"].as_str().unwrap();
    assert!(warning.contains("at 2 of 2 steps") && warning.contains("--precision bf16"), "{warning}");
    assert!(case.path("int8").join("student/model.safetensors").exists());
    let report = fs::read_to_string(case.path("int8").join("report.html")).unwrap();
    assert!(report.contains("<td>guard</td><td>0 of 2 steps within the bound"));
    // In bf16 there is nothing to say.
    let (code, _, noted) = run("bf16", "bf16");
    assert!(code == Some(0) && !noted.contains("warning: int8"), "{noted}");
}

#[test]
fn a_model_trains_without_a_teacher() {
    let case = case();
    let mut run = train(&case.student, &case.data, &case.out());
    succeed(run.args(["--batch-size", "2", "--seq-len", "16", "--steps", "3"]).args(INT8));
    assert_eq!(compared(&case.out()), [1, 3]);
}

#[test]
fn what_int8_does_not_go_with_is_refused_and_says_what_does() {
    let case = case();
    let run = |arguments: &[&str]| fail(&mut case.distill(&case.out(), &[&INT8[..], arguments].concat()), 2);
    assert!(run(&["--lora-rank", "2", "--guard-every", "5"]).contains("leave it out"));
    let bf16 = fail(&mut case.distill(&case.out(), &["--guard-every", "5"]), 2);
    assert!(bf16.contains("of --precision int8, and this is --precision bf16"), "{bf16}");
    // What computes without training has no such form.
    let forward = |arguments: &[&str]| {
        let mut command = precast();
        fail(command.args(arguments).arg("--model").arg(&case.student).args(["--precision", "int8"]), 2)
    };
    let data = case.data.display().to_string();
    for message in [forward(&["eval", "--data", &data]), forward(&["generate", "--prompt", "a"])] {
        assert!(message.contains("expected fp32 or bf16"), "{message}");
    }
    assert!(!case.out().exists());
}

/// The teacher's format is a choice of its own.
#[test]
fn the_teacher_is_exact_unless_it_is_asked_for_in_8_bits() {
    let case = case();
    let kd = |out: &str, arguments: &[&str]| {
        succeed(&mut case.distill(&case.path(out), &[&INT8[..], &["--steps", "2"], arguments].concat()));
        let run = run_record(&case.path(out));
        (
            run["config"]["teacher_format"].clone(),
            run.get("teacher_certificate").cloned().unwrap_or(Value::Null),
            metrics_of(&case.path(out))[0].kd_loss,
        )
    };
    let (auto, bf16) = (kd("auto", &[]), kd("bf16", &["--teacher-format", "bf16"]));
    assert_eq!(auto, bf16);
    assert_eq!((auto.0, auto.1), (json!("bf16"), Value::Null));
    let int8 = kd("int8", &["--teacher-format", "int8"]);
    assert!(int8.0 == json!("int8") && int8.1["measured"]["kl_mean"].as_f64().unwrap() > 0.0 && int8.2 != auto.2);
}
