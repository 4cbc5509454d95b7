//! `precast train`: the trainer without a teacher, and nothing of one.

use crate::support::prelude::*;

const RUN: &str = "--precision fp32 --lr 1e-2";

fn head_keys(kernels: &Value) -> Vec<String> {
    each::<String>(kernels, "key").into_iter().filter(|key| key.starts_with("head.")).collect()
}

#[test]
fn a_run_without_a_teacher_writes_what_every_run_writes() {
    let case = Case::new(17 * 9);
    let printed = case.train("out", [RUN, "--steps 8"]).prints("model    ");
    assert!(!printed.contains("teacher") && !printed.contains("  kd "), "{printed}");
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

/// The JSON plan of a run on the simulated GPU.
fn plan(models: &str) -> Value {
    precast().with(["plan --device sim --json --batch-size 2 --seq-len 16 --precision fp32", models]).json()
}

#[test]
fn a_plan_without_a_teacher_has_nothing_of_one() {
    let alone = plan("--model tests/models/tiny.json");
    let taught = plan("--teacher tests/models/wide.json --student tests/models/tiny.json");
    assert_eq!(head_keys(&alone["kernels"]), ["head.ce{x=f32}", "head.metrics{kd=false}"]);
    assert_eq!(head_keys(&taught["kernels"]), ["head.distill{reverse=false,x=f32}", "head.metrics{kd=true}"]);
    // Two layers, of the student alone.
    let kernels = list::<Value>(&alone["kernels"]);
    let attention = kernels.iter().find(|kernel| kernel["key"].as_str().unwrap().starts_with("attention.fwd")).unwrap();
    assert_eq!(attention["launches"], 2);
    let categories = |plan: &Value| plan["memory"]["rows"].to_string();
    assert!(categories(&taught).contains("teacher_weights") && !categories(&alone).contains("teacher_weights"));
    assert!(alone["memory"]["total_bytes"].as_u64() < taught["memory"]["total_bytes"].as_u64());
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

#[test]
fn a_dry_run_plans_checks_and_writes_nothing() {
    let case = Case::new(17 * 9);
    let printed = case.train("out", [RUN, "--dry-run --verbose"]).prints("head.ce{x=f32}");
    assert!(!case.has("out"), "{printed}");
    case.write("garbage.bin", [1, 2, 3]);
    case.train("out", [RUN, "--data garbage.bin --dry-run"]).fails(5, "");
}

#[test]
fn a_run_continues_to_the_same_bits_and_with_no_teacher() {
    let case = Case::new(17 * 9);
    let run = |out: &str, more: &str| case.train(out, [RUN, "--shuffle true", more]).succeeds();
    run("whole", "--steps 6");
    run("out", "--steps 3");
    run("out", "--steps 6 --resume --recompute blocks");
    assert!(case.weights("whole") == case.weights("out"));
    let losses = |out: &str| case.losses(out).into_iter().map(f64::to_bits).collect::<Vec<_>>();
    assert_eq!(losses("whole"), losses("out"));
    let said = ["alpha was none, is 0.5", "temperature was none, is 2", "beta was none, is 0"];
    case.distill("out", [RUN, "--steps 8 --shuffle true --resume"]).fails(2, said);
}

/// What it trains is a model there, and no student.
#[test]
fn train_calls_what_it_trains_a_model() {
    let case = Case::new(17 * 9);
    let said = case.train("said", [RUN, "--steps 1"]).prints(["\nmodel    ", "\nmodel:   "]);
    assert!(!said.contains("\nstudent"), "{said}");
}
