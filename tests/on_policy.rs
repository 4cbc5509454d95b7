//! A student that learns from what it writes: the same bits however it is written, and on any number of ranks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::device::weight_format::KERNELS_BYTES;
use precast::run::gpu::GpuRecord;
use precast::run::rollout::RolloutRecord;
use precast::run::step::StepRecord;
use serde_json::{Value, json};

use crate::copies::Host;
use crate::support::{
    Case, fail, has_driver, is_sim, lacks_compiler, metrics_of, on_device, precast, run_record, skipped, succeed,
    texts, tiny_config, tokenizer, with_tensor,
};

/// Two tiny models of which the student ends texts by some tokens, and rows of ragged prompts.
pub fn case() -> Case {
    let case = Case::new(17 * 8);
    fs::write(case.student.join("generation_config.json"), json!({"eos_token_id": [5, 9, 17]}).to_string()).unwrap();
    let row = |at: u32| {
        let prompt: Vec<u32> = (0..1 + at * 5 % 11).map(|token| (7 * at + 13 * token * token + 3) % 96).collect();
        let labels: Vec<i64> = prompt.iter().map(|_| -100).chain([11, 12, 13]).collect();
        let ids = [&prompt[..], &[11, 12, 13]].concat();
        json!({"input_ids": ids, "labels": labels}).to_string() + "\n"
    };
    fs::write(case.path("prompts.jsonl"), (0..23).map(row).collect::<String>()).unwrap();
    case
}

pub fn run(case: &Case, out: &str, arguments: &[&str]) -> Command {
    let mut command =
        crate::support::distill(&case.teacher, &case.student, &case.path("prompts.jsonl"), &case.path(out));
    command.args(["--on-policy", "--max-tokens", "12", "--batch-size", "2", "--seq-len", "24", "--lr", "1e-2"]);
    command.args(["--grad-accum", "4", "--steps", "4", "--checkpoint-every", "0"]).args(arguments);
    command
}

/// Weights, and the steps without what depends on the clock and on memory.
pub fn results(out: &Path) -> (Vec<u8>, Vec<StepRecord>) {
    let timeless = |record: StepRecord| StepRecord {
        step_ms: 0.0,
        tokens_per_s: 0.0,
        memory_bytes: 0,
        gpu: GpuRecord::default(),
        rollouts: record.rollouts.map(|rollouts| RolloutRecord {
            rollout_s: 0.0,
            rollout_tokens_per_s: 0.0,
            ..rollouts
        }),
        ..record
    };
    let weights = ["student/model.safetensors", "adapter/adapter_model.safetensors"].map(|name| out.join(name));
    let weights: PathBuf = weights.into_iter().find(|path| path.exists()).expect("something has trained");
    (fs::read(weights).unwrap(), metrics_of(out).into_iter().map(timeless).collect())
}

/// Decoding has the bits of training, in every precision, with adapters and under recomputation, whatever the slots.
#[test]
fn every_token_is_scored_as_it_was_drawn_in_any_slots() {
    let case = case();
    for (name, arguments) in [
        ("fp32", &["--precision", "fp32"][..]),
        ("bf16", &["--precision", "bf16", "--top-k", "40", "--top-p", "0.9", "--sampling-temperature", "0.8"]),
        ("int8", &["--precision", "int8", "--guard-every", "0"]),
        ("lora", &["--precision", "bf16", "--lora-rank", "3", "--recompute", "blocks"]),
    ] {
        let [few, many] = ["3", "512"].map(|slots| {
            let out = format!("{name}-{slots}");
            succeed(run(&case, &out, arguments).args(["--rollout-slots", slots]));
            results(&case.path(out))
        });
        assert!(few == many, "{name}");
        for record in &few.1 {
            let rollouts = record.rollouts.as_ref().expect("completions");
            assert_eq!((rollouts.mismatch, record.skipped), (0, false), "{name}");
            if name == "fp32" {
                // What was drawn is what counts: both are the mean of the same log-probabilities.
                assert!((rollouts.entropy / record.ce_loss.unwrap() - 1.0).abs() < 1e-5, "{record:?}");
            }
        }
        let ended = few.1.iter().any(|record| record.rollouts.as_ref().unwrap().ended_share > 0.0);
        assert!(ended, "{name}: none ended by itself");
    }
}

#[test]
fn a_run_that_resumes_writes_the_same_again() {
    let case = case();
    let with = ["--precision", "fp32", "--on-policy", "0.6", "--group-size", "4", "--shuffle", "true"];
    succeed(&mut run(&case, "whole", &with));
    succeed(run(&case, "parts", &with).args(["--steps", "2", "--checkpoint-every", "1"]));
    succeed(run(&case, "parts", &with).args(["--resume", "--checkpoint-every", "1", "--rollout-slots", "2"]));
    assert!(results(&case.path("parts")) == results(&case.path("whole")));
    // Some sequences are the data's, others the student's.
    succeed(&mut run(&case, "own", &["--precision", "fp32", "--group-size", "4", "--shuffle", "true"]));
    assert!(results(&case.path("own")).0 != results(&case.path("whole")).0);
    let message =
        fail(run(&case, "parts", &["--precision", "fp32", "--resume", "--steps", "5"]).args(["--top-k", "3"]), 2);
    assert!(message.contains("top_k") || message.contains("--top-k"), "{message}");
}

#[test]
fn ranks_write_and_learn_the_same() {
    if skipped(!is_sim(), "it is of simulated GPUs") {
        return;
    }
    let case = case();
    // The guard of the first rank computes a micro-batch more, and changes nothing.
    for (precision, guard) in [("bf16", &[][..]), ("int8", &["--guard-every", "2"])] {
        let with = [&["--precision", precision, "--replicas", "4"], guard].concat();
        let out = |count: &str| format!("{precision}-{count}");
        succeed(&mut run(&case, &out("1"), &with));
        for count in ["2", "4"] {
            succeed(run(&case, &out(count), &with).args(["--gpus", count]));
            assert!(results(&case.path(out(count))) == results(&case.path(out("1"))), "{precision}, {count} ranks");
        }
    }
}

/// Sequences that the student does not write have the data's completions, with their own masks.
#[test]
fn completions_of_the_data_are_those_of_their_rows() {
    let case = case();
    let text = "again and cat mat on sat the";
    for model in [&case.teacher, &case.student] {
        let mut words = tokenizer(text);
        words["pre_tokenizer"] = json!({"type": "WhitespaceSplit"});
        fs::write(model.join("tokenizer.json"), words.to_string()).unwrap();
    }
    let tokens = |data: &str, out: &str| {
        fs::write(case.path("rows.jsonl"), data.to_owned() + "\n").unwrap();
        let mut command =
            crate::support::distill(&case.teacher, &case.student, &case.path("rows.jsonl"), &case.path(out));
        command.args(["--on-policy", "1e-6", "--max-tokens", "8", "--seq-len", "16", "--batch-size", "1"]);
        succeed(command.args(["--steps", "1", "--precision", "fp32"]));
        metrics_of(&case.path(out))[0].tokens
    };
    assert_eq!(tokens(r#"{"prompt": "the cat ", "completion": "sat on the mat"}"#, "text"), 4);
    let masked = r#"{"input_ids": [1, 2, 3, 4, 5, 6], "labels": [-100, -100, 3, -100, -100, 6]}"#;
    assert_eq!(tokens(masked, "ids"), 2);
    // A word that tokenizers have and models have not.
    for model in [&case.teacher, &case.student] {
        let words = fs::read_to_string(model.join("tokenizer.json")).unwrap();
        fs::write(model.join("tokenizer.json"), words.replace(r#""sat":5"#, r#""sat":96"#)).unwrap();
    }
    let mut command =
        crate::support::distill(&case.teacher, &case.student, &case.path("rows.jsonl"), &case.path("far"));
    fs::write(case.path("rows.jsonl"), r#"{"prompt": "the cat ", "completion": "sat on the mat"}"#).unwrap();
    let far = fail(command.args(["--on-policy", "1e-6", "--max-tokens", "8", "--seq-len", "16"]), 5);
    assert!(far.contains("rows.jsonl:1: input_ids[0] is 96, and the model's vocabulary is 0 to 95"), "{far}");
}

/// Everything that has no prompts, or none that fits, is refused where it is.
#[test]
fn data_without_prompts_that_fit_are_refused() {
    let case = case();
    let message = |data: &str, arguments: &[&str]| {
        let mut command = crate::support::distill(&case.teacher, &case.student, &case.path(data), &case.path("none"));
        fail(command.args(["--on-policy", "--max-tokens", "12", "--seq-len", "16"]).args(arguments), 5)
    };
    assert!(message("data.bin", &[]).contains("data.bin has no prompts: give --prompt-tokens N"));
    fs::write(case.path("long.jsonl"), json!({"input_ids": [1, 2, 3, 4, 5, 6]}).to_string()).unwrap();
    let long = message("long.jsonl", &[]);
    assert!(long.contains("the longest has 6 tokens, and --seq-len less --max-tokens leaves room for 4"), "{long}");
    fs::write(case.path("alone.jsonl"), json!({"input_ids": [1, 2, 3], "labels": [-100, -100, -100]}).to_string())
        .unwrap();
    let alone = message("alone.jsonl", &["--on-policy", "0.5"]);
    assert!(alone.contains("alone.jsonl:1: no completion behind its prompt"), "{alone}");
    fs::write(case.path("empty.jsonl"), json!({"input_ids": [1, 2], "labels": [1, 2]}).to_string()).unwrap();
    let empty = message("empty.jsonl", &[]);
    assert!(empty.contains("empty.jsonl:1: a prompt of no tokens"), "{empty}");
    // Of a file without rows each sequence begins with a prompt; those that have no room are counted.
    let mut command = crate::support::distill(&case.teacher, &case.student, &case.data, &case.path("bin"));
    command.args(["--on-policy", "--max-tokens", "12", "--seq-len", "16", "--prompt-tokens", "4", "--steps", "2"]);
    succeed(command.args(["--batch-size", "2", "--precision", "fp32"]));
    let mut mixed =
        crate::support::distill(&case.teacher, &case.student, &case.path("prompts.jsonl"), &case.path("some"));
    mixed.args(["--on-policy", "--max-tokens", "12", "--seq-len", "16", "--steps", "2", "--batch-size", "2"]);
    let output = mixed.args(["--precision", "fp32"]).output().unwrap();
    let (_, stderr) = texts(&output);
    assert!(
        output.status.success() && stderr.contains("prompts leave no room for a completion of --max-tokens"),
        "{stderr}"
    );
}

/// The tokens of prompts, which no label of their rows counts, are what 8 bits are measured on.
#[test]
fn an_8_bit_teacher_is_measured_on_the_tokens_of_prompts() {
    let case = case();
    let int8 = ["--teacher-format", "int8", "--max-teacher-kl", "none", "--precision", "bf16", "--steps", "1"];
    succeed(&mut run(&case, "int8", &int8));
    let known = run_record(&case.path("int8"))["teacher_certificate"].clone();
    // Of the first two prompts, of 1 and of 6 tokens.
    assert_eq!([&known["by"], &known["measured"]["tokens"]], [&json!("first batch"), &json!(5)]);
    let short = json!({"input_ids": [7, 8, 9], "labels": [-100, 8, 9]}).to_string();
    fs::write(case.path("prompts.jsonl"), short).unwrap();
    let message = fail(&mut run(&case, "short", &int8), 2);
    assert!(
        message.contains("no prompt of the first step has a second token")
            && message.contains("--teacher-certificate FILE:")
    );
}

#[test]
fn logits_that_are_no_numbers_and_a_student_that_ends_no_text_are_said() {
    let mut case = case();
    let tensor = "model.layers.0.input_layernorm.weight";
    let broken = with_tensor(&case, "student", "damaged", tensor, |index, was| if index == 0 { f32::MAX } else { was });
    let sound = std::mem::replace(&mut case.student, broken);
    let message = fail(&mut run(&case, "broken", &["--precision", "fp32"]), 1);
    // Its prompt has one token.
    let said = "step 1: sequence 0 at position 1: a logit is not finite, and no token is drawn.";
    assert!(message.contains(said), "{message}");
    assert!(metrics_of(&case.path("broken")).is_empty());
    fs::remove_file(sound.join("generation_config.json")).unwrap();
    case.student = sound;
    let output = run(&case, "endless", &["--precision", "fp32", "--steps", "1"]).output().unwrap();
    let note = "names no token that ends a text: --max-tokens ends each completion";
    assert!(output.status.success() && texts(&output).1.matches(note).count() == 1, "{}", texts(&output).1);
    assert_eq!(metrics_of(&case.path("endless"))[0].tokens, 8 * 12);
}

/// A number of slots that does not fit is refused in bytes with the most that does; a run takes as many as its plan says.
#[test]
fn slots_are_as_many_as_fit_and_more_are_refused() {
    if has_driver() || lacks_compiler() {
        return;
    }
    let host = Host::new(&[("PRECAST_FAKE_INTEGRATED", "0")]);
    let shape = ["--on-policy", "--prompt-tokens", "3", "--max-tokens", "4", "--seq-len", "64", "--grad-accum", "130"];
    let plan = |arguments: &[&str]| -> Value {
        let mut plan = precast();
        plan.args(["plan", "--arch", "sm_121", "--json", "--batch-size", "1"]).args(shape).args(arguments);
        let Case { teacher, student, .. } = &host.case;
        let output = plan.arg("--teacher").arg(teacher).arg("--student").arg(student).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let bytes = |slots: &str| plan(&["--rollout-slots", slots])["memory_bytes"].as_u64().unwrap();
    // For 64, and not for 128.
    let free_mib = (bytes("128") + KERNELS_BYTES - 1) >> 20;
    let memory = format!("{free_mib}MiB");
    let mut command = host.distill("out", &[&shape[..], &["--steps", "1", "--untrained"]].concat().join(" "));
    command.env("PRECAST_FAKE_FREE_MIB", free_mib.to_string());
    let asked = ["--rollout-slots", "512"];
    let message = fail(command.args(asked), 4);
    let said = format!(
        "512 slots of 64 tokens do not fit; --rollout-slots 64 does: the plan takes {} bytes of device memory and ",
        bytes("512")
    );
    assert!(message.contains(&said) && message.contains(&format!(" has {} free", free_mib << 20)), "{message}");
    assert_eq!(plan(&[&asked[..], &["--memory", &memory]].concat())["suggestions"][0]["flags"], "--rollout-slots 64");
    let auto = plan(&["--memory", &memory]);
    assert_eq!(auto["rollouts"]["slots"], 64);
    succeed(command.args(["--rollout-slots", "auto"]));
    assert_eq!(metrics_of(&host.out("out"))[0].memory_bytes, auto["memory_bytes"]);
}

/// A plan and a benchmark of steps on completions take the memory and the slots that they take.
#[test]
fn steps_on_completions_are_planned_and_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (dir.path().join("tiny.json"), dir.path().join("bench"));
    fs::write(&model, tiny_config(&[]).to_string()).unwrap();
    let command = |name: &str, arguments: &[&str]| {
        let mut command = precast();
        command.arg(name).arg("--teacher").arg(&model).arg("--student").arg(&model).args(on_device());
        command.args(["--on-policy", "--batch-size", "2", "--grad-accum", "3", "--seq-len", "16"]).args(arguments);
        command
    };
    let json = |name: &str, arguments: &[&str]| -> Value {
        serde_json::from_str(&succeed(command(name, arguments).arg("--json"))).unwrap()
    };
    let planned = json("plan", &["--max-tokens", "9"]);
    let measured = json("bench", &["--max-tokens", "9", "--steps", "3", "--out", out.to_str().unwrap()]);
    assert_eq!(planned["memory"], measured["memory"]["planned"]);
    assert_eq!([&planned["rollouts"]["slots"], &measured["slots"], &measured["prompt_tokens"]], [6, 6, 7]);
    let step = &measured["step"];
    // Six completions, and a target less than each sequence has tokens.
    assert_eq!([&step["new_tokens"], &step["positions"], &step["mismatch"]], [6 * 9, 6 * 15, 0]);
    let ms = ["write_ms", "train_ms", "step_ms"].map(|name| step[name].as_f64().unwrap());
    assert!(ms[0] > 0.0 && ms[1] > 0.0 && (ms[0] + ms[1] - ms[2]).abs() < 1e-6, "{step}");
    assert!((step["new_tokens_per_s"].as_f64().unwrap() * ms[2] / 54e3 - 1.0).abs() < 1e-6, "{step}");
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("6 slots of 16 tokens"));
    // Short sequences are in short micro-batches.
    let short = ["--prompt-tokens", "2", "--max-tokens", "3", "--steps", "1"];
    let step = json("bench", &short)["step"].clone();
    assert_eq!([&step["positions"], &step["padding_share"]], [&json!(6 * 4), &json!(0.25)]);
    let printed = succeed(&mut command("bench", &short));
    for said in ["6 of 2 + 3 tokens", "ms: 18 new tokens in 6 slots", "\nmismatch          0\n", "keys and values"] {
        assert!(printed.contains(said), "{said}: {printed}");
    }
    for (arguments, said) in [
        (&["--max-tokens", "9", "--prompt-tokens", "8"][..], "--prompt-tokens 8 and --max-tokens 9 are more than"),
        (&["--max-tokens", "9", "--sweep"], "cannot be used with"),
        (&["--max-tokens", "9", "--samples-every", "1"], "cannot be used with '--samples-every"),
    ] {
        let message = fail(&mut command("bench", arguments), 2);
        assert!(message.contains(said), "{message}");
    }
    // Where nothing is completed, no option of that does anything.
    for option in ["--max-tokens", "--prompt-tokens", "--group-size", "--top-k"] {
        let message = fail(precast().args(["bench", "--kernel", "softmax", option, "4"]).args(on_device()), 2);
        assert!(message.contains("required") && message.contains("--on-policy"), "{message}");
    }
}
