//! Success means success: what has not done its work fails, and leaves nothing that looks done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::inputs::checkpoint::{Checkpoint, CheckpointError, Student, Write, stored, write_model};
use precast_kernels::Dtype;
use precast_plan::{Parameter, Parameters};
use precast_system::files::Existing;
use safetensors::SafeTensors;

use crate::golden;
use crate::support::{
    Case, bundle, device, distill, fail, is_sim, metrics_of, precast, random_model, succeed, texts, tiny_config,
    token_file, with_tensor,
};

/// A copy of a model with one f32 element of a tensor replaced.
pub fn planted(dir: &Path, model: &Path, name: &str, tensor: &str, element: usize, value: f32) -> PathBuf {
    let planted = dir.join(name);
    fs::create_dir(&planted).unwrap();
    fs::copy(model.join("config.json"), planted.join("config.json")).unwrap();
    let mut bytes = fs::read(model.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = tensors.tensor(tensor).unwrap().data();
    let offset = data.as_ptr().addr() - bytes.as_ptr().addr() + 4 * element;
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    fs::write(planted.join("model.safetensors"), bytes).unwrap();
    planted
}

/// A command with a model and the device under test.
fn command(name: &str, arguments: &[(&str, &Path)]) -> Command {
    let mut command = precast();
    command.args([name, "--device", &device(), "--batch-size", "2", "--seq-len", "16"]);
    for (flag, path) in arguments {
        command.arg(flag).arg(path);
    }
    if let Some(bundle) = bundle() {
        command.arg("--bundle").arg(bundle);
    }
    command
}

#[test]
fn weights_that_are_not_finite_are_found_by_everything_that_loads_them() {
    let dir = tempfile::tempdir().unwrap();
    let model = random_model(dir.path(), "model", 1, &tiny_config(&[]));
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    let name = "model.layers.1.mlp.down_proj.weight";
    let bad = planted(dir.path(), &model, "bad", name, 77, f32::NAN);
    let infinite = planted(dir.path(), &model, "infinite", "model.norm.weight", 3, f32::NEG_INFINITY);
    // Finite as it is stored, infinite in the run's bf16.
    let large = planted(dir.path(), &model, "large", "model.norm.weight", 3, f32::MAX);
    let out = dir.path().join("out");

    let short = |teacher: &Path, student: &Path, precision: &str| {
        let mut command = distill(teacher, student, &data, &out);
        command.args(["--steps", "2", "--batch-size", "2", "--seq-len", "16", "--precision", precision]);
        command
    };
    let bench = |teacher: &Path| command("bench", &[("--teacher", teacher), ("--student", &model)]);
    let mut init = precast();
    init.arg("init").arg("--from").arg(&bad).args(["--layers", "0,1", "--out"]).arg(&out);
    let commands = [
        ("teacher", short(&bad, &model, "fp32")),
        ("student", short(&model, &bad, "fp32")),
        ("in bf16", short(&model, &bad, "bf16")),
        ("eval", command("eval", &[("--model", &bad), ("--data", &data)])),
        ("bench", bench(&bad)),
        ("init", init),
    ];
    for (what, mut command) in commands {
        let message = fail(&mut command, 5);
        assert!(
            message.contains(&format!("{}: tensor {name} is NaN at element 77", bad.display())),
            "{what}: {message}"
        );
        assert!(!out.join("student").exists() && !out.join("config.json").exists(), "{what}");
    }
    let message = fail(&mut short(&infinite, &model, "fp32"), 5);
    assert!(message.contains("tensor model.norm.weight is -inf at element 3 (as f32)"), "{message}");
    let message = fail(&mut short(&large, &model, "bf16"), 5);
    assert!(message.contains("tensor model.norm.weight is inf at element 3 (as bf16)"), "{message}");
}

#[test]
fn no_model_is_written_from_weights_that_are_not_finite() {
    let dir = tempfile::tempdir().unwrap();
    let model = Checkpoint::open(&random_model(dir.path(), "model", 1, &tiny_config(&[]))).unwrap();
    let parameters = Parameters::new(model.config()).list;
    let student =
        Student { config: &model.json, parameters: &parameters, dtype: stored(Dtype::F32), tokenizer_from: &[&model] };
    let out = dir.path().join("below/out");
    let last = &parameters[parameters.len() - 1];
    let read = |parameter: &Parameter, write: &mut Write<'_>| {
        let mut values = vec![1.0f32; parameter.elems() as usize];
        if parameter.name == last.name {
            values[5] = f32::INFINITY;
        }
        write(bytemuck::cast_slice(&values))
    };
    let error: CheckpointError = write_model(&out, Existing::Keep, &student, read).unwrap_err();
    assert!(matches!(&error, CheckpointError::WouldNotBeFinite { what, .. } if what.tensor == last.name), "{error}");
    assert!(error.to_string().contains("is inf at element 5"), "{error}");
    let left = fs::read_dir(out.parent().unwrap()).map_or(0, Iterator::count);
    assert_eq!(left, 0, "something was left behind");
}

/// Perplexity of the golden case's tokens under one of its models, with more arguments.
fn eval(model: &Path, arguments: &[&str]) -> Command {
    let mut command = command("eval", &[("--model", model), ("--data", &golden::case("tokens.bin"))]);
    command.args(arguments);
    command
}

/// A model that knows the golden case's tokens better than guessing: distilled on them.
fn trained(dir: &Path) -> PathBuf {
    let out = dir.join("run");
    let mut command = distill(&golden::case("teacher"), &golden::case("student"), &golden::case("tokens.bin"), &out);
    command.args(["--steps", "12", "--batch-size", "4", "--seq-len", "64", "--lr", "1e-2", "--alpha", "0"]);
    command.args(["--precision", "fp32", "--checkpoint-every", "0"]);
    succeed(&mut command);
    out.join("student")
}

#[test]
fn a_model_that_guesses_fails_its_evaluation_unless_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let model = random_model(dir.path(), "model", 1, &tiny_config(&[("initializer_range", 0.5.into())]));
    let data = token_file(dir.path(), "data.bin", 17 * 8, 96);
    let mut guess = command("eval", &[("--model", &model), ("--data", &data)]);
    let message = fail(&mut guess, 1);
    // ln 96.
    assert!(
        message.contains("is no better than the 4.5643 of guessing") && message.contains("--untrained"),
        "{message}"
    );
    let printed = succeed(guess.arg("--untrained"));
    assert!(printed.starts_with("nll "), "{printed}");

    // Finite weights, and activations that are not.
    let broken = planted(dir.path(), &model, "broken", "model.norm.weight", 0, f32::MAX);
    let message = fail(command("eval", &[("--model", &broken), ("--data", &data)]).arg("--untrained"), 1);
    assert!(message.contains("not a number of nats"), "{message}");
}

#[test]
fn a_score_is_held_against_a_number_and_against_another_model() {
    let dir = tempfile::tempdir().unwrap();
    let (better, worse) = (trained(dir.path()), golden::case("student"));
    let below = |model: &Path, baseline: &Path| {
        let mut command = eval(model, &["--untrained", "--json", "--below"]);
        command.arg(baseline);
        command
    };
    let scores: serde_json::Value = serde_json::from_str(&succeed(&mut below(&better, &worse))).unwrap();
    let [nll, other] = [&scores["nll"], &scores["below"]["nll"]].map(|nll| nll.as_f64().unwrap());
    assert!(nll < other && scores["below"]["model"] == worse.display().to_string(), "{scores}");
    let message = fail(&mut below(&worse, &better), 1);
    assert!(message.contains(&format!("nll {other:.6}")) && message.contains(&format!("{nll:.6}")), "{message}");
    fail(&mut below(&better, &better), 1);

    let perplexity = scores["perplexity"].as_f64().unwrap();
    let (above, under) = ((perplexity + 0.01).to_string(), (perplexity - 0.01).to_string());
    succeed(&mut eval(&better, &["--untrained", "--max-perplexity", &above]));
    let message = fail(&mut eval(&better, &["--untrained", "--max-perplexity", &under]), 1);
    assert!(message.contains(&format!("{perplexity:.4} is above --max-perplexity {under}")), "{message}");
    for (option, value) in [("--max-perplexity", "nan"), ("--max-perplexity", "0"), ("--batch-size", "0")] {
        assert_eq!(eval(&better, &[option, value]).output().unwrap().status.code(), Some(2), "{option} {value}");
    }

    // A context that only one of them reaches cuts the text elsewhere.
    let config = std::fs::read_to_string(worse.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["max_position_embeddings"] = 8.into();
    let short = random_model(dir.path(), "short", 3, &config);
    let message = fail(&mut below(&better, &short), 5);
    assert!(message.contains("different tokens"), "{message}");
}

#[test]
fn a_selftest_that_checks_nothing_fails() {
    let run = |arguments: &[&str]| {
        let mut command = precast();
        command.args(["selftest", "--device", &device()]).args(arguments);
        command
    };
    if !is_sim() {
        let bundle = bundle().expect("kernels for the device under test");
        let message = fail(run(&["--kernel", "no-such"]).arg("--bundle").arg(bundle), 2);
        assert!(message.contains("--kernel no-such"), "{message}");
        return;
    }
    let message = fail(&mut run(&[]), 3);
    assert!(message.contains("nothing to check"), "{message}");

    let dir = tempfile::tempdir().unwrap();
    let model = precast_plan::ModelConfig::from_json(&tiny_config(&[]).to_string()).unwrap();
    let keys = precast_plan::build_keys(&[model], precast_kernels::Arch::Sim);
    let write = |name: &str, manifest: &precast_fatbins::Manifest| {
        let path = dir.path().join(name);
        fs::write(&path, precast_fatbins::encode(manifest, |_| &[])).unwrap();
        path.display().to_string()
    };
    let whole = write("whole.bundle", &precast_fatbins::Manifest::simulated(&keys));
    let nothing = write("nothing.bundle", &precast_fatbins::Manifest::simulated([]));
    let message = fail(&mut run(&["--bundle", &nothing]), 3);
    assert!(message.contains("no code for simulated GPU"), "{message}");
    let message = fail(&mut run(&["--bundle", &whole, "--kernel", "no-such"]), 2);
    assert!(message.contains("--kernel no-such"), "{message}");
    // What a comparison of the references with themselves is worth is said.
    let printed = succeed(&mut run(&["--bundle", &whole, "--kernel", "rmsnorm.fwd"]));
    assert!(!printed.starts_with("0 ") && printed.contains("no machine code"), "{printed}");
}

/// A run of tiny models on random tokens.
fn short_run(dir: &Path, arguments: &[&str]) -> (Command, PathBuf) {
    let [teacher, student] = [1, 2].map(|seed| random_model(dir, &format!("model-{seed}"), seed, &tiny_config(&[])));
    let data = token_file(dir, "data.bin", 17 * 8, 96);
    let out = dir.join("out");
    let mut command = distill(&teacher, &student, &data, &out);
    command.args(["--batch-size", "2", "--seq-len", "16", "--checkpoint-every", "0"]).args(arguments);
    (command, out)
}

fn outcome(out: &Path) -> serde_json::Value {
    let run: serde_json::Value = serde_json::from_slice(&fs::read(out.join("run.json")).unwrap()).unwrap();
    run["outcome"].clone()
}

#[test]
fn a_run_says_how_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (mut command, out) = short_run(dir.path(), &["--steps", "12", "--precision", "fp32"]);
    succeed(&mut command);
    let losses: Vec<f64> = metrics_of(&out).iter().map(|record| record.loss.unwrap()).collect();
    let outcome = outcome(&out);
    let last = losses[7..].iter().sum::<f64>() / 5.0;
    assert_eq!(outcome["first_loss"].as_f64(), Some(losses[0]), "{outcome}");
    assert!((outcome["last_loss"].as_f64().unwrap() - last).abs() < 1e-12, "{outcome}");
    assert_eq!((&outcome["status"], outcome.get("reason")), (&"done".into(), None));
    assert_eq!((&outcome["steps_done"], &outcome["steps_skipped"]), (&12.into(), &0.into()));
    assert!(outcome["wall_s"].as_f64().unwrap() > 0.0, "{outcome}");
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("<td>outcome</td><td>done</td>"));
}

#[test]
fn a_run_whose_last_steps_were_skipped_fails_and_writes_no_student() {
    let dir = tempfile::tempdir().unwrap();
    // The first step throws the weights away; every later one is skipped.
    let (mut command, out) = short_run(dir.path(), &["--steps", "4", "--lr", "1e30", "--precision", "fp32"]);
    let message = fail(&mut command, 1);
    assert!(message.contains("3 of the last 4 steps were skipped"), "{message}");
    let outcome = outcome(&out);
    assert_eq!((&outcome["status"], &outcome["steps_done"]), (&"failed".into(), &4.into()));
    assert!(outcome["steps_skipped"].as_u64().unwrap() > 0, "{outcome}");
    assert!(message.contains(outcome["reason"].as_str().unwrap()), "{outcome}");
    assert!(!out.join("student").exists() && out.join("report.html").exists());

    // More of the same end it before its last step.
    let (mut command, out) =
        short_run(&scratch(&dir, "diverged"), &["--steps", "40", "--lr", "1e30", "--precision", "fp32"]);
    fail(&mut command, 1);
    assert_eq!((outcome_status(&out), out.join("student").exists()), ("failed".to_owned(), false));
}

/// The only step's loss is finite and so are its gradients; what the update makes of the weights is not, in bf16.
#[test]
fn a_student_whose_last_update_overflows_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--steps", "1", "--lr", "3.4e38", "--weight-decay", "0", "--precision", "bf16"];
    let (mut command, out) = short_run(dir.path(), &arguments);
    let message = fail(&mut command, 1);
    assert!(message.contains("student is not written: tensor ") && message.contains("inf at element"), "{message}");
    let mut left: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["metrics.jsonl", "report.html", "run.json", "run.log"]);
    assert_eq!(outcome_status(&out), "failed");
}

#[test]
fn a_run_that_diverges_fails_and_its_student_has_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let (mut command, out) = short_run(dir.path(), &["--steps", "6", "--lr", "1", "--checkpoint-every", "6"]);
    let message = fail(&mut command, 1);
    assert!(message.contains("the run diverged: the last ce_loss is "), "{message}");
    assert!(message.contains("--lr 1, --warmup 0 and --clip 1"), "{message}");
    let has = |name: &str| out.join(name).exists();
    assert!(has("student.diverged/model.safetensors") && has("checkpoint-6") && !has("student"), "{message}");
    assert_eq!(outcome_status(&out), "failed");
    let diverged = fs::read(out.join("student.diverged/model.safetensors")).unwrap();
    succeed(command.args(["--resume", "--allow-divergence"]));
    assert_eq!(fs::read(out.join("student/model.safetensors")).unwrap(), diverged);
    assert_eq!((outcome_status(&out), has("student.diverged")), ("done".to_owned(), false));
}

#[test]
fn a_run_without_a_gradient_fails_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut command, first) = short_run(dir.path(), &["--steps", "1", "--lora-rank", "2"]);
    succeed(&mut command);
    // Above 0 as it is written, and 0 as it is computed with.
    let config = first.join("adapter/adapter_config.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    json["lora_alpha"] = 1e-320.into();
    fs::write(&config, json.to_string()).unwrap();
    let (mut command, out) = short_run(&scratch(&dir, "scaled"), &["--steps", "40", "--adapter"]);
    let message = fail(command.arg(first.join("adapter")), 1);
    assert!(message.contains("is exactly 0 in each of the first 10 steps"), "{message}");
    assert!(message.contains("the adapter's scale is 0 in f32: raise lora_alpha"), "{message}");
    assert_eq!((outcome_status(&out), out.join("adapter").exists()), ("failed".to_owned(), false));
}

#[test]
fn a_model_whose_head_is_zero_is_refused_and_one_with_other_zeros_is_noted() {
    let case = Case::new(17 * 9);
    let zero = |name: &str, tensor: &str| with_tensor(&case, &case.student, name, tensor, |_, _| 0.0);
    let run = |student: &Path, out: &str| {
        let mut command = distill(&case.teacher, student, &case.data, &case.path(out));
        command.args(["--batch-size", "2", "--seq-len", "16", "--steps", "1"]);
        command
    };
    let tensor = "model.norm.weight";
    let message = fail(&mut run(&zero("headless", tensor), "refused"), 5);
    assert!(message.contains(&format!("tensor {tensor} is wholly zero")), "{message}");
    let tensor = "model.layers.0.mlp.down_proj.weight";
    let output = run(&zero("expanded", tensor), "noted").output().unwrap();
    let (_, stderr) = texts(&output);
    let noted = format!("note: tensors of the student that are wholly zero: 1, {tensor}\n");
    assert!(output.status.success() && stderr.contains(&noted), "{stderr}");
}

fn outcome_status(out: &Path) -> String {
    outcome(out)["status"].as_str().unwrap().to_owned()
}

fn scratch(dir: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::create_dir(&path).unwrap();
    path
}
