//! Standard output: a full device is an error, a reader that has gone away is none.

use std::io::{BufRead, BufReader};

use crate::support::prelude::*;

/// A plan: more lines than a pipe's reader waits for here.
fn plan() -> Command {
    let models = "--teacher aot/models/qwen2.5-0.5b.json --student aot/models/qwen2.5-0.5b.json";
    let mut command = precast();
    command.with(["plan --arch sm_121", models]);
    command
}

/// The message of a program whose standard output is a full device, which ends with 1.
fn on_full(command: &mut Command) -> String {
    let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let (code, _, message) = command.stdout(full).ends();
    assert_eq!(code, Some(1), "{command:?}: {message}");
    message
}

#[test]
fn a_full_device_is_an_error() {
    let [mut help, mut version, mut keys] = [precast(), precast(), precast_aot()];
    help.with("--help");
    version.with("--version");
    keys.with("keys --model tests/models/tiny.json");
    for mut command in [plan(), help, version, keys] {
        let message = on_full(&mut command);
        assert!(message.starts_with("error: cannot write to standard output: No space left"), "{message}");
    }
}

#[test]
fn a_run_whose_output_is_lost_ends_its_work_and_says_so() {
    let case = Case::new(17 * 4);
    let message = on_full(&mut case.distill("out", "--steps 2 --precision fp32"));
    assert!(message.contains("error: cannot write to standard output"), "{message}");
    assert!(case.has("out/student/model.safetensors"));
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    let mut child = plan().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    // The pipe is closed at the end of this statement.
    BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(first.starts_with("takes "), "{first}");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Programs print a line of progress every 30 seconds where there is no terminal; the test sets the interval to 0.
#[test]
fn long_phases_say_how_far_they_are() {
    let case = Case::new(17 * 8);
    let run = |out: &str, seconds: Option<&str>| {
        let mut command = case.distill(out, "--steps 3 --log-every 100 --untrained");
        command.envs(seconds.map(|seconds| ("PRECAST_PROGRESS_S", seconds))).says()
    };
    let [steps, said] = run("often", Some("0"));
    assert!(said.contains("\nweights: ") || said.starts_with("weights: "), "{said}");
    assert!(said.contains(" GiB (100 %) after ") && steps.contains("\nstep 2/3 "), "{steps}{said}");
    let [steps, said] = run("seldom", None);
    assert!(!said.contains("weights: ") && !steps.contains("step 2/3 "), "{steps}{said}");
    assert!(steps.contains("step 3/3 "), "{steps}");
}

/// The loss on held-out data within a run, and every program that writes a model.
#[test]
fn evaluations_and_writers_say_how_far_they_are() {
    let case = Case::new(17 * 8);
    let adapter = "--lora-rank 2 --steps 1 --untrained --eval-every 1 --eval-data data.bin";
    let written = "writing the model: 0.00 of 0.00 GiB (100 %) after ";
    for (mut command, expected) in [
        (case.distill("run", adapter), "held-out loss: 4 of 4 micro-batches (100 %) after "),
        (case.run("init --layers 0 --from student --out init"), written),
        (case.run("merge --adapter run/adapter --model student --out merged"), written),
    ] {
        let [_, said] = command.env("PRECAST_PROGRESS_S", "0").says();
        assert!(said.contains(expected), "{said}");
    }
}
