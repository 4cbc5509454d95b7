//! `precast train`: the trainer without a teacher, and nothing of one.

use crate::support::prelude::*;

const RUN: &str = "--precision fp32 --lr 1e-2";

fn head_keys(kernels: &Value) -> Vec<String> {
    each::<String>(kernels, "key").into_iter().filter(|key| key.starts_with("head.")).collect()
}

#[test]
fn a_run_without_a_teacher_writes_what_every_run_writes() {
    let case = Case::new(17 * 9);
    let printed = case.train("out", [RUN, "--steps 8"]).prints(["\nmodel    ", "\nmodel:   "]);
    assert!(!printed.contains("\nstudent") && !printed.contains("teacher") && !printed.contains("  kd "), "{printed}");
    let left = ["checkpoint-8", "metrics.jsonl", "report.html", "run.json", "run.log", "student"];
    assert_eq!(case.names("out"), left);
    assert!(case.metrics("out").iter().all(|step| step.loss == step.ce_loss && step.kd_loss == Some(0.0)));
    let losses = case.losses("out");
    assert!(losses.len() == 8 && losses[7] < losses[0], "{losses:?}");
    let record = case.record("out");
    assert_eq!(record["outcome"]["status"], "done");
    for absent in ["/config/teacher", "/config/alpha", "/config/temperature", "/config/beta", "/models/teacher"] {
        assert_eq!(record.pointer(absent), None, "{absent}");
    }
    assert!(record["models"]["student"].is_string(), "{record}");
    assert_eq!(head_keys(&record["loads"]), ["head.ce{x=f32}", "head.metrics{kd=false}"]);
    let report = case.text("out/report.html");
    assert!(report.contains("<h1>precast train</h1>") && !report.contains("kd_loss"), "{report}");
    // A model that others read.
    let mut eval = case.run("eval --untrained --data data.bin --model out/student --seq-len 16 --device");
    let (code, _, stderr) = eval.arg(device()).ends();
    assert!(code == Some(0) || !is_sim(), "{stderr}");
}

/// Help names what can be given, and nothing that is refused.
#[test]
fn help_of_train_names_nothing_of_a_teacher() {
    let help = |command: &str| precast().args([command, "--help"]).succeeds();
    let (train, distill) = (help("train"), help("distill"));
    assert!(train.contains("--model <PATH>") && !distill.contains("--model <PATH>"), "{train}{distill}");
    for option in
        ["--teacher <", "--student <", "--alpha", "--temperature", "--beta", "--untrained", "--allow-identical"]
    {
        assert!(!train.contains(option) && distill.contains(option), "{option}: {train}");
    }
}

#[test]
fn every_command_that_takes_a_pair_takes_a_model_alone() {
    const TINY: &str = "tests/models/tiny.json";
    let run = |command: &str| {
        let shape = format!("--model {TINY} --batch-size 2 --seq-len 32");
        precast().with([command, &shape]).args(device_and_bundle()).succeeds()
    };
    let smoke = run("smoke");
    assert!(smoke.contains("\"ok\":true"), "{smoke}");
    let bench = run("bench step --steps 2");
    assert!(bench.contains("head.ce{x=bf16}") && !bench.contains("teacher"), "{bench}");
    let doctor = run("doctor");
    assert!(doctor.contains("kernels") && doctor.contains("memory"), "{doctor}");
    let (half, three) = (format!("--teacher {TINY}"), format!("--model {TINY} --teacher {TINY} --student {TINY}"));
    for command in ["smoke", "bench step"] {
        for models in ["", &half, &three] {
            assert_eq!(precast().with([command, models]).ends().0, Some(2), "{command} {models}");
        }
    }
}
