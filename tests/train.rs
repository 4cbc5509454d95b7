//! `precast train`: the trainer without a teacher, and nothing of one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{
    device, distill, fail, is_sim, metrics_of, names_in, precast, random_model, run_record, succeed, tiny_config,
    token_file, train,
};

struct Case {
    dir: tempfile::TempDir,
    model: PathBuf,
    data: PathBuf,
}

fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let model = random_model(dir.path(), "model", 1, &tiny_config(&[]));
    let data = token_file(dir.path(), "data.bin", 17 * 9, 96);
    Case { dir, model, data }
}

const SHAPE: [&str; 6] = ["--batch-size", "2", "--seq-len", "16", "--precision", "fp32"];

impl Case {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn train(&self, out: &str, arguments: &[&str]) -> Command {
        let mut command = train(&self.model, &self.data, &self.path(out));
        command.args(SHAPE).args(["--lr", "1e-2"]).args(arguments);
        command
    }
}

fn weights(out: &Path) -> Vec<u8> {
    fs::read(out.join("student/model.safetensors")).unwrap()
}

#[test]
fn a_run_without_a_teacher_writes_what_every_run_writes() {
    let case = case();
    let out = case.path("out");
    let printed = succeed(&mut case.train("out", &["--steps", "8"]));
    assert!(printed.contains("model    ") && !printed.contains("teacher") && !printed.contains("  kd "), "{printed}");
    assert_eq!(names_in(&out), ["checkpoint-8", "metrics.jsonl", "report.html", "run.json", "run.log", "student"]);
    let metrics = metrics_of(&out);
    assert!(metrics.iter().all(|step| step.loss == step.ce_loss && step.kd_loss == Some(0.0)));
    let losses: Vec<f64> = metrics.iter().map(|step| step.loss.unwrap()).collect();
    assert!(losses.len() == 8 && losses[7] < losses[0], "{losses:?}");
    let record = run_record(&out);
    assert_eq!(record["outcome"]["status"], "done");
    for absent in ["/config/teacher", "/config/alpha", "/config/temperature", "/config/beta", "/models/teacher"] {
        assert_eq!(record.pointer(absent), None, "{absent}");
    }
    assert!(record["models"]["student"].is_string(), "{record}");
    let keys: Vec<&str> =
        record["loads"].as_array().unwrap().iter().map(|load| load["key"].as_str().unwrap()).collect();
    let of_head: Vec<&&str> = keys.iter().filter(|key| key.starts_with("head.")).collect();
    assert_eq!(of_head, [&"head.ce{x=f32}", &"head.metrics{kd=false}"]);
    let report = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("<h1>precast train</h1>") && !report.contains("kd_loss"), "{report}");
    // A model that others read.
    let scored = precast()
        .args(["eval", "--untrained", "--device", &device(), "--data"])
        .arg(&case.data)
        .arg("--model")
        .arg(out.join("student"))
        .args(["--seq-len", "16"])
        .output()
        .unwrap();
    assert!(scored.status.success() || !is_sim(), "{}", String::from_utf8_lossy(&scored.stderr));
}

#[test]
fn what_is_of_a_teacher_is_a_usage_error() {
    let case = case();
    let model = case.model.to_str().unwrap();
    let options: [(&str, &str, &str); 8] = [
        ("--teacher", model, "teacher = 'PATH'"),
        ("--student", model, "student = 'PATH'"),
        ("--alpha", "0.5", "alpha = 0.5"),
        ("--temperature", "2", "temperature = 2.0"),
        ("--beta", "0", "beta = 0.0"),
        ("--untrained", "true", "untrained = true"),
        ("--allow-identical", "true", "allow_identical = true"),
        ("--on-policy", "1", "on_policy = 1.0"),
    ];
    let toml = case.path("run.toml");
    for (option, value, line) in options {
        let message = fail(&mut case.train("out", &[option, value]), 2);
        assert!(message.contains(&format!("{option} is of a run with a teacher")), "{message}");
        fs::write(&toml, line.replace("PATH", model)).unwrap();
        let message = fail(&mut case.train("out", &["--config", toml.to_str().unwrap()]), 2);
        assert!(message.contains(&format!("{option} is of a run with a teacher")), "{message}");
    }
    let mut alone = precast();
    alone.args(["train", "--data"]).arg(&case.data).arg("--out").arg(case.path("out"));
    assert!(fail(&mut alone, 2).contains("--model is missing"));
    let message = fail(distill(&case.model, &case.model, &case.data, &case.path("out")).arg("--model").arg(model), 2);
    assert!(message.contains("`precast train --model`"), "{message}");
    assert!(!case.path("out").exists());
    // Help names what can be given, and nothing that is refused.
    let help = |command: &str| succeed(precast().args([command, "--help"]));
    let (train, distill) = (help("train"), help("distill"));
    assert!(train.contains("--model <PATH>") && !distill.contains("--model <PATH>"), "{train}{distill}");
    for option in
        ["--teacher <", "--student <", "--alpha", "--temperature", "--beta", "--untrained", "--allow-identical"]
    {
        assert!(!train.contains(option) && distill.contains(option), "{option}: {train}");
    }
}

/// The JSON plan of a run on the simulated GPU.
fn plan(models: &[&str]) -> Value {
    let mut command = precast();
    command.args(["plan", "--device", "sim", "--json"]).args(models).args(SHAPE);
    serde_json::from_str(&succeed(&mut command)).unwrap()
}

#[test]
fn a_plan_without_a_teacher_has_nothing_of_one() {
    let alone = plan(&["--model", "tests/models/tiny.json"]);
    let taught = plan(&["--teacher", "tests/models/wide.json", "--student", "tests/models/tiny.json"]);
    let keys = |plan: &Value| -> Vec<(String, u64)> {
        let kernels = plan["kernels"].as_array().unwrap().iter();
        kernels
            .map(|kernel| (kernel["key"].as_str().unwrap().to_owned(), kernel["launches"].as_u64().unwrap()))
            .collect()
    };
    let of_head = |plan: &Value| -> Vec<String> {
        keys(plan).into_iter().map(|(key, _)| key).filter(|key| key.starts_with("head.")).collect()
    };
    assert_eq!(of_head(&alone), ["head.ce{x=f32}", "head.metrics{kd=false}"]);
    assert_eq!(of_head(&taught), ["head.distill{reverse=false,x=f32}", "head.metrics{kd=true}"]);
    let attention = |plan: &Value| keys(plan).into_iter().find(|(key, _)| key.starts_with("attention.fwd")).unwrap().1;
    // Two layers, of the student alone.
    assert_eq!(attention(&alone), 2);
    let categories = |plan: &Value| plan["memory"]["rows"].to_string();
    assert!(categories(&taught).contains("teacher_weights") && !categories(&alone).contains("teacher_weights"));
    assert!(alone["memory"]["total_bytes"].as_u64() < taught["memory"]["total_bytes"].as_u64());
}

#[test]
fn every_command_that_takes_a_pair_takes_a_model_alone() {
    let device = device();
    let run = |arguments: &[&str]| {
        let mut command = precast();
        command.args(arguments).args(["--device", &device]);
        if let Some(bundle) = crate::support::bundle() {
            command.arg("--bundle").arg(bundle);
        }
        succeed(&mut command)
    };
    let shape = ["--batch-size", "2", "--seq-len", "32"];
    let smoke = run(&[&["smoke", "--model", "tests/models/tiny.json"][..], &shape].concat());
    assert!(smoke.contains("\"ok\":true"), "{smoke}");
    let bench = run(&[&["bench", "--model", "tests/models/tiny.json", "--steps", "2"][..], &shape].concat());
    assert!(bench.contains("head.ce{x=bf16}") && !bench.contains("teacher"), "{bench}");
    let doctor = run(&[&["doctor", "--model", "tests/models/tiny.json"][..], &shape].concat());
    assert!(doctor.contains("kernels") && doctor.contains("memory"), "{doctor}");
    for command in ["smoke", "bench"] {
        let wrong = |models: &[&str]| precast().arg(command).args(models).output().unwrap().status.code();
        let tiny = "tests/models/tiny.json";
        assert_eq!(wrong(&[]), Some(2));
        assert_eq!(wrong(&["--teacher", tiny]), Some(2));
        assert_eq!(wrong(&["--model", tiny, "--teacher", tiny, "--student", tiny]), Some(2));
    }
}

#[test]
fn a_dry_run_plans_checks_and_writes_nothing() {
    let case = case();
    let printed = succeed(&mut case.train("out", &["--dry-run", "--verbose"]));
    assert!(printed.contains("head.ce{x=f32}") && !case.path("out").exists(), "{printed}");
    let garbage = case.path("garbage.bin");
    fs::write(&garbage, [1, 2, 3]).unwrap();
    fail(train(&case.model, &garbage, &case.path("out")).args(SHAPE).arg("--dry-run"), 5);
}

#[test]
fn a_run_continues_to_the_same_bits_and_never_as_one_with_a_teacher() {
    let case = case();
    succeed(&mut case.train("whole", &["--steps", "6", "--shuffle", "true"]));
    succeed(&mut case.train("out", &["--steps", "3", "--shuffle", "true"]));
    succeed(&mut case.train("out", &["--steps", "6", "--shuffle", "true", "--resume", "--recompute", "blocks"]));
    let (whole, out) = (case.path("whole"), case.path("out"));
    assert!(weights(&whole) == weights(&out));
    let losses = |out: &Path| metrics_of(out).iter().map(|step| step.loss.unwrap().to_bits()).collect::<Vec<_>>();
    assert_eq!(losses(&whole), losses(&out));
    let other = random_model(case.dir.path(), "other", 2, &tiny_config(&[]));
    let mut taught = distill(&other, &case.model, &case.data, &out);
    taught.args(SHAPE).args(["--lr", "1e-2", "--steps", "8", "--shuffle", "true", "--resume"]);
    let message = fail(&mut taught, 2);
    for difference in ["alpha was none, is 0.5", "temperature was none, is 2", "beta was none, is 0"] {
        assert!(message.contains(difference), "{difference}: {message}");
    }
}

/// What it trains is a model there, and no student.
#[test]
fn train_calls_what_it_trains_a_model() {
    let case = case();
    let said = succeed(&mut case.train("said", &["--steps", "1"]));
    assert!(said.contains("\nmodel    ") && said.contains("\nmodel:   ") && !said.contains("student:"), "{said}");
}
