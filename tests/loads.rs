//! What was loaded is on record, in order, and said as it happens; and a run first says what it runs on.

use std::collections::BTreeSet;

use crate::copies::Host;
use crate::driver::machine;
use crate::support::launches;
use crate::support::prelude::*;

/// (key and variant, digest, bytes) of each line that --verbose prints.
fn said(stderr: &str) -> Vec<(String, String, u64)> {
    let field = |line: &str, name: &str| -> String {
        let (_, rest) = line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("no {name} in {line}"));
        rest.split(' ').next().unwrap().to_owned()
    };
    let lines = stderr.lines().filter(|line| line.trim_start().starts_with("load "));
    let of_line = |line: &str| {
        assert!(field(line, "microseconds").parse::<u64>().is_ok(), "{line}");
        (field(line, "kernel"), field(line, "sha256").replace('"', ""), field(line, "bytes").parse().unwrap())
    };
    lines.map(of_line).collect()
}

const SMALL: &str = "--steps 1 --batch-size 2 --seq-len 16 --precision bf16 --checkpoint-every 0";

/// Returns name, digest and bytes of each kernel that a file of JSON lists.
fn listed(kernels: &Value) -> Vec<(String, String, u64)> {
    let text = |kernel: &Value, field: &str| kernel[field].as_str().unwrap().to_owned();
    let of_one = |kernel: &Value| {
        let pair = format!("{}[{}]", text(kernel, "key"), text(kernel, "variant"));
        (pair, text(kernel, "sha256"), kernel["bytes"].as_u64().unwrap())
    };
    list::<Value>(kernels).iter().map(of_one).collect()
}

#[test]
fn every_load_is_in_the_record_and_said_as_it_happens() {
    skip_if!(has_driver());
    let gb10 = machine(&[]).equipped();
    let train = "train --device cuda:0 --verbose --model model --data data.bin --out out --bundle sm_121.bundle";
    let [_, stderr] = gb10.line([train, SMALL]).env("PRECAST_LIBCUDA_LOG", gb10.path().join("log")).says();
    let loads = run_record(&gb10.path().join("out"))["loads"].clone();
    assert!(each::<u64>(&loads, "microseconds").len() > 10);
    let recorded = listed(&loads);
    assert_eq!(recorded, said(&stderr));
    // As the driver saw it.
    assert_eq!(gb10.text("log").lines().filter(|call| *call == "load").count(), recorded.len());
    // And with the digests that the bundle has for them.
    let in_bundle: BTreeSet<_> =
        listed(&gb10.line("kernels --json --bundle sm_121.bundle").json()["kernels"]).into_iter().collect();
    assert!(recorded.iter().all(|load| in_bundle.contains(load)));
}

#[test]
fn a_run_first_says_what_it_runs_on() {
    let case = Case::new(17 * 4);
    case.run("init --config student.json --seed 1 --precision bf16 --out narrow").succeeds();
    let printed = case.distill("out", ["--student narrow", SMALL]).succeeds();
    let record = case.record("out");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (arch, name) = (text(&record["device"]["arch"]), text(&record["device"]["name"]));
    let expect = |printed: &str, model_lines: &[&str]| {
        // How warm a GPU is comes after that of which it runs, and not everywhere.
        let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with("gpu ") && !is_note(line)).collect();
        assert!(lines[0].starts_with(&format!("device   {name} (")), "{printed}");
        // People read the name that --arch takes.
        assert_eq!(lines[1], format!("arch     {}", arch.replace("sm_90a", "sm_90")), "{printed}");
        assert!(lines[2].starts_with("bundle   ") && lines[2].ends_with(" kernels"), "{printed}");
        assert_eq!(lines[3..3 + model_lines.len()], *model_lines, "{printed}");
        lines[2].to_owned()
    };
    let wide = format!("{}: F32, 20 tensors", case.teacher.display());
    let bundle_line = expect(&printed, &[&format!("teacher  {wide}"), "student  narrow: BF16, 20 tensors"]);
    let loads = record["loads"].as_array().unwrap().len();
    assert_eq!(bundle_line, format!("bundle   {}, {loads} kernels", text(&record["bundle"])));

    // Where a program reads the result, the heading is not beside it.
    let eval = "eval --untrained --seq-len 16 --model teacher --data data.bin";
    expect(&case.run(eval).says()[1], &["model    teacher: F32, 20 tensors"]);
    let [json, stderr] = case.run([eval, "--json"]).says();
    let is_json = serde_json::from_str::<Value>(&json).is_ok();
    assert!(is_json && !stderr.contains("device "), "{json}\n{stderr}");
    let bench = "bench step --steps 1 --batch-size 2 --seq-len 16 --student student --teacher teacher.json";
    let lines = ["teacher  teacher.json: random weights", "student  student: F32, 20 tensors"];
    expect(&case.run(bench).succeeds(), &lines);
}

/// Completions in fewer slots than there are, and whole, half and quarter micro-batches of them, as the driver sees it.
#[test]
fn nothing_is_loaded_or_taken_while_a_student_writes_and_learns() {
    skip_if!(has_driver() || lacks_compiler());
    let host = Host::new(&[("PRECAST_FAKE_LOG_MEMORY", "1"), ("PRECAST_FAKE_INTEGRATED", "0")]);
    for (prompt, completion) in [(3, 12), (3, 5), (2, 3)] {
        let (out, log) = (completion.to_string(), host.out(&format!("log-{completion}")));
        let shape = format!("--on-policy --prompt-tokens {prompt} --max-tokens {completion} --rollout-slots 3");
        let mut run = host.distill(&out, &format!("{shape} --grad-accum 8 --steps 2 --checkpoint-every 0"));
        run.env("PRECAST_LIBCUDA_LOG", &log).succeeds();
        // A decode a token of each of the three turns at the slots.
        let launches = launches(&log);
        assert!(launches > 2 * 3 * completion, "{completion}: {launches}");
    }
}
