//! `samples.jsonl`: what the student wrote in training, to be looked at and replayed.

use std::fs;

use precast::run::samples_file::SampleLine;
use serde_json::Value;

use crate::on_policy::{case, run};
use crate::support::{Case, fail, is_sim, names_in, on_device, precast, run_record, skipped, succeed, texts};

const EVERY: [&str; 6] = ["--precision", "fp32", "--replicas", "4", "--samples-every", "1"];

fn bytes(case: &Case, out: &str) -> Vec<u8> {
    fs::read(case.path(out).join("samples.jsonl")).unwrap()
}

#[test]
fn samples_are_the_completions_of_their_steps_on_any_ranks() {
    let case = case();
    succeed(&mut run(&case, "whole", &EVERY));
    let lines = |out: &str| -> Vec<SampleLine> {
        bytes(&case, out).split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    };
    let all = lines("whole");
    let numbers: Vec<(u64, u64)> = all.iter().map(|line| (line.step, line.sequence)).collect();
    assert_eq!(numbers, (0..32).map(|number| (number / 8 + 1, number)).collect::<Vec<_>>());
    // Those of the first step are what the student writes before it.
    let mut generate = precast();
    generate.args(["generate", "--max-tokens", "12", "--seq-len", "24", "--precision", "fp32", "--model"]);
    generate.arg(&case.student).arg("--data").arg(case.path("prompts.jsonl")).args(on_device());
    succeed(generate.arg("--out").arg(case.path("completions.jsonl")));
    let completions = fs::read_to_string(case.path("completions.jsonl")).unwrap();
    for (line, written) in all[..8].iter().zip(completions.lines()) {
        let written: Value = serde_json::from_str(written).unwrap();
        let ids = [&line.prompt_ids[..], &line.completion_ids].concat();
        assert_eq!(serde_json::json!(ids), written["input_ids"], "{line:?}");
        let text = line.completion_ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(line.completion, text);
    }
    let report = fs::read_to_string(case.path("whole/report.html")).unwrap();
    let (_, table) = report.split_once("Completions that step 4 trained on").unwrap();
    let shown = |line: &SampleLine| table.contains(&format!("<td>{}</td><td>{}</td>", line.prompt, line.completion));
    assert!(all[24..27].iter().all(shown) && !shown(&all[27]));
    // Some steps, and some of their sequences.
    succeed(&mut run(&case, "some", &["--on-policy", "0.5", "--samples-every", "3"]));
    let some = lines("some");
    assert!((1..8).contains(&some.len()) && some.iter().all(|line| line.step == 3), "{some:?}");
    if !skipped(!is_sim(), "ranks are of simulated GPUs") {
        for count in ["2", "4"] {
            succeed(run(&case, count, &EVERY).args(["--gpus", count]));
            assert!(bytes(&case, count) == bytes(&case, "whole"), "{count} ranks");
        }
    }
}

#[test]
fn samples_of_a_killed_run_are_those_of_a_whole_one() {
    let case = case();
    let every = [&EVERY[..], &["--checkpoint-every", "2"]].concat();
    succeed(&mut run(&case, "whole", &every));
    for at in (1..).step_by(19) {
        let _ = fs::remove_dir_all(case.path("out"));
        let killed = run(&case, "out", &every).env("PRECAST_KILL_AT", at.to_string()).output().unwrap();
        if killed.status.success() {
            break;
        }
        let names = if case.path("out").exists() { names_in(&case.path("out")) } else { Vec::new() };
        let has = |prefix: &str| names.iter().any(|name| name.starts_with(prefix));
        let start = match (has("checkpoint-"), has("run.json")) {
            (true, _) => &["--resume"][..],
            (false, true) => &["--overwrite"],
            (false, false) => &[],
        };
        let (_, message) = texts(&run(&case, "out", &every).args(start).output().unwrap());
        assert!(!message.contains("error: ") || message.contains("steps are done"), "change {at}: {message}");
        assert!(bytes(&case, "out") == bytes(&case, "whole"), "change {at}");
    }
    // The file is the run's: it goes with it, and one that somebody has changed stays.
    fs::write(case.path("whole/samples.jsonl"), "mine\n").unwrap();
    let message = fail(run(&case, "whole", &every).args(["--steps", "5", "--resume"]), 5);
    assert!(message.contains("samples.jsonl: its first"), "{message}");
    assert!(fail(run(&case, "whole", &every).arg("--overwrite"), 2).contains("samples.jsonl"));
    assert!(run_record(&case.path("out"))["samples_written"]["bytes"].as_u64().unwrap() > 0);
    succeed(run(&case, "out", &every).args(["--steps", "1", "--samples-every", "0", "--overwrite"]));
    assert!(!names_in(&case.path("out")).contains(&"samples.jsonl".to_owned()));
}

#[test]
fn completions_never_replace_a_file_that_no_run_wrote() {
    let case = case();
    let checkpoints = ["--checkpoint-every", "1"];
    succeed(run(&case, "out", &checkpoints).args(["--steps", "1"]));
    fs::write(case.path("out/samples.jsonl"), "mine\n").unwrap();
    let mut resumed = run(&case, "out", &[&EVERY[4..], &checkpoints].concat());
    // The second time it is the run's no more than the first.
    for _ in 0..2 {
        let message = fail(resumed.args(["--steps", "2", "--resume"]), 2);
        assert!(message.contains("samples.jsonl is not listed: Precast did not write it"), "{message}");
        assert_eq!(bytes(&case, "out"), b"mine\n");
    }
}
