//! `samples.jsonl`: what the student wrote in training, to be looked at and replayed.

use precast::run::samples_file::SampleLine;

use crate::on_policy::{case, run};
use crate::support::prelude::*;

const EVERY: &str = "--precision fp32 --replicas 4 --samples-every 1";

fn bytes(case: &Case, out: &str) -> Vec<u8> {
    case.read(format!("{out}/samples.jsonl"))
}

#[test]
fn samples_are_the_completions_of_their_steps_on_any_ranks() {
    let case = case();
    run(&case, "whole", EVERY).succeeds();
    let lines = |out: &str| -> Vec<SampleLine> {
        bytes(&case, out).split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    };
    let all = lines("whole");
    let numbers: Vec<(u64, u64)> = all.iter().map(|line| (line.step, line.sequence)).collect();
    assert_eq!(numbers, (0..32).map(|number| (number / 8 + 1, number)).collect::<Vec<_>>());
    // Those of the first step are what the student writes before it.
    let generate = "generate --max-tokens 12 --seq-len 24 --precision fp32 --model student --data prompts.jsonl";
    case.run([generate, "--out completions.jsonl"]).succeeds();
    for (line, written) in all[..8].iter().zip(case.text("completions.jsonl").lines()) {
        let written: Value = serde_json::from_str(written).unwrap();
        let ids = [&line.prompt_ids[..], &line.completion_ids].concat();
        assert_eq!(json!(ids), written["input_ids"], "{line:?}");
        let text = line.completion_ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(line.completion, text);
    }
    let report = case.text("whole/report.html");
    let (_, table) = report.split_once("Completions that step 4 trained on").unwrap();
    let shown = |line: &SampleLine| table.contains(&format!("<td>{}</td><td>{}</td>", line.prompt, line.completion));
    assert!(all[24..27].iter().all(shown) && !shown(&all[27]));
    // Some steps, and some of their sequences.
    run(&case, "some", "--on-policy 0.5 --samples-every 3").succeeds();
    let some = lines("some");
    assert!((1..8).contains(&some.len()) && some.iter().all(|line| line.step == 3), "{some:?}");
    skip_if!(is_on_gpu());
    for count in ["2", "4"] {
        run(&case, count, [EVERY, "--gpus", count]).succeeds();
        assert!(bytes(&case, count) == bytes(&case, "whole"), "{count} ranks");
    }
}

#[test]
fn samples_of_a_killed_run_are_those_of_a_whole_one() {
    let case = case();
    let run = |out: &str, more: &str| run(&case, out, [EVERY, "--checkpoint-every 2", more]);
    run("whole", "").succeeds();
    for at in (1..).step_by(19) {
        let _ = fs::remove_dir_all(case.out());
        if !is_killed_at(at, &mut run("out", "")) {
            break;
        }
        goes_on(&mut run("out", continuation(&case.out())), &format!("change {at}"));
        assert!(bytes(&case, "out") == bytes(&case, "whole"), "change {at}");
    }
    // The file is the run's: it goes with it, and one that somebody has changed stays.
    case.write("whole/samples.jsonl", "mine\n");
    run("whole", "--steps 5 --resume").fails(5, "samples.jsonl: its first");
    run("whole", "--overwrite").fails(2, "samples.jsonl");
    assert!(case.record("out")["samples_written"]["bytes"].as_u64().unwrap() > 0);
    run("out", "--steps 1 --samples-every 0 --overwrite").succeeds();
    assert!(!case.has("out/samples.jsonl"));
}

#[test]
fn completions_never_replace_a_file_that_no_run_wrote() {
    let case = case();
    run(&case, "out", "--checkpoint-every 1 --steps 1").succeeds();
    case.write("out/samples.jsonl", "mine\n");
    // The second time it is the run's no more than the first.
    for _ in 0..2 {
        let mut resumed = run(&case, "out", "--samples-every 1 --checkpoint-every 1 --steps 2 --resume");
        resumed.fails(2, "samples.jsonl is not listed: Precast did not write it");
        assert_eq!(bytes(&case, "out"), b"mine\n");
    }
}
