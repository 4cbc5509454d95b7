//! What a run in int8 says of its gradients beside bf16's, and what goes with `--precision int8`.

use crate::support::prelude::*;

const INT8: &str = "--precision int8 --checkpoint-every 0";

fn case() -> Case {
    Case::new(17 * 20)
}

/// The steps whose gradients were compared.
fn compared(case: &Case, out: &str) -> Vec<u64> {
    case.metrics(out).iter().filter(|record| record.guard.is_some()).map(|record| record.step).collect()
}

#[test]
fn a_run_says_how_far_its_gradients_are_from_bf16s() {
    let case = case();
    let printed = case.distill("out", [INT8, "--steps 5 --guard-every 3"]).succeeds();
    assert_eq!(compared(&case, "out"), [1, 3, 5]);
    assert_eq!(printed.matches("  guard layer ").count(), 3, "{printed}");
    let run = case.record("out");
    assert_eq!(run["config"]["guard_every"], 3);
    let guard = &run["guard"];
    assert_eq!((&guard["steps"], &guard["within"], &guard["beyond"]), (&json!(3), &json!(true), &json!(0)), "{guard}");
    assert_eq!(guard["last"]["step"], 5);
    for record in case.metrics("out").iter().filter_map(|record| record.guard.as_ref()) {
        assert_eq!(record.0.len(), 2, "a layer each");
        for layer in &record.0 {
            // Near bf16's, and not bf16's.
            let (cosine, norm) = (layer.cosine.unwrap(), layer.norm.unwrap());
            assert!((0.97..1.0 - 1e-7).contains(&cosine) && (0.9..1.1).contains(&norm), "{layer:?}");
        }
    }
    let report = case.text("out/report.html");
    assert!(report.contains("<td>guard</td><td>3 of 3 steps within the bound") && report.contains(">layer 1</text>"));
    assert!(run["outcome"].get("warning").is_none());
}

#[test]
fn a_run_that_continues_knows_what_was_compared_before() {
    let case = case();
    let run = |out: &str, more: &str| case.distill(out, ["--precision int8 --checkpoint-every 2", more]).succeeds();
    run("whole", "--steps 4 --guard-every 2");
    run("out", "--steps 2 --guard-every 1");
    run("out", "--resume --steps 4 --guard-every 2");
    assert!(case.weights("out") == case.weights("whole"));
    assert_eq!((compared(&case, "out"), &case.record("out")["guard"]["steps"]), (vec![1, 2, 4], &json!(3)));
}

/// A column of outliers that nothing is multiplied by: exact gradients are as they were, and 8 bits hold nothing else.
#[test]
fn a_run_beyond_the_bound_says_so_and_does_its_work() {
    let case = case();
    let (hidden, intermediate) = (32, 48);
    let [up, down] = ["up_proj", "down_proj"].map(|name| format!("model.layers.1.mlp.{name}.weight"));
    with_tensor(&case, "student", "quiet", &up, |index, was| if index < hidden { 0.0 } else { was });
    with_tensor(&case, "quiet", "planted", &down, |index, was| if index % intermediate == 0 { 30_000.0 } else { was });
    let run = |precision: &str| {
        let how = "--student planted --steps 2 --checkpoint-every 0 --lr 1e-6 --precision";
        case.distill(precision, [how, precision]).says()
    };
    let [printed, noted] = run("int8");
    assert!(printed.contains(" BEYOND the bound"), "{printed}");
    assert!(noted.contains("warning: int8's gradients left the guard's bound"), "{noted}");
    let record = case.record("int8");
    assert_eq!((&record["guard"]["within"], &record["outcome"]["status"]), (&json!(false), &json!("done")));
    let warning = record["outcome"]["warning"].as_str().unwrap();
    assert!(warning.contains("at 2 of 2 steps") && warning.contains("--precision bf16"), "{warning}");
    assert!(case.has("int8/student/model.safetensors"));
    let report = case.text("int8/report.html");
    assert!(report.contains("<td>guard</td><td>0 of 2 steps within the bound"));
    // In bf16 there is nothing to say.
    let [_, noted] = run("bf16");
    assert!(!noted.contains("warning: int8"), "{noted}");
}

#[test]
fn a_model_trains_without_a_teacher() {
    let case = case();
    case.train("out", [INT8, "--steps 3"]).succeeds();
    assert_eq!(compared(&case, "out"), [1, 3]);
    case.train("never", [INT8, "--steps 1 --guard-every 0"]).succeeds();
    assert!(compared(&case, "never").is_empty() && case.record("never").get("guard").is_none());
}
