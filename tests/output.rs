//! Standard output: a full device is an error, a reader that has gone away is none.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::{Case, distill, precast, precast_aot, random_model, texts, tiny_config, token_file};

/// A plan: more lines than a pipe's reader waits for here.
fn plan() -> Command {
    let mut command = precast();
    command.args(["plan", "--arch", "sm_121", "--teacher", "aot/models/qwen2.5-0.5b.json", "--student"]);
    command.arg("aot/models/qwen2.5-0.5b.json");
    command
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("/dev/full")
}

#[test]
fn a_full_device_is_an_error() {
    let [mut help, mut version, mut keys] = [precast(), precast(), precast_aot()];
    help.arg("--help");
    version.arg("--version");
    keys.args(["keys", "--model", "tests/models/tiny.json"]);
    for mut command in [plan(), help, version, keys] {
        let output = command.stdout(full()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {message}");
        assert!(message.starts_with("error: cannot write to standard output: No space left"), "{message}");
    }
}

#[test]
fn a_run_whose_output_is_lost_ends_its_work_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let [teacher, student] = [1, 2].map(|seed| random_model(dir.path(), &format!("{seed}"), seed, &tiny_config(&[])));
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    let out = dir.path().join("out");
    let mut command = distill(&teacher, &student, &data, &out);
    command.args(["--steps", "2", "--batch-size", "2", "--seq-len", "16", "--precision", "fp32"]);
    let output = command.stdout(full()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("error: cannot write to standard output"), "{message}");
    assert!(out.join("student/model.safetensors").exists());
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
        let mut command = case.distill(&case.path(out), &["--steps", "3", "--log-every", "100", "--untrained"]);
        let output = command.envs(seconds.map(|seconds| ("PRECAST_PROGRESS_S", seconds))).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        texts(&output)
    };
    let (steps, said) = run("often", Some("0"));
    assert!(said.contains("\nweights: ") || said.starts_with("weights: "), "{said}");
    assert!(said.contains(" GiB (100 %) after "), "{said}");
    assert!(steps.contains("\nstep 2/3 "), "{steps}");
    let (steps, said) = run("seldom", None);
    assert!(
        !said.contains("weights: ") && !steps.contains("step 2/3 ") && steps.contains("step 3/3 "),
        "{steps}{said}"
    );
}

/// The loss on held-out data within a run, and every program that writes a model.
#[test]
fn evaluations_and_writers_say_how_far_they_are() {
    let case = Case::new(17 * 8);
    let said = |command: &mut Command| {
        let output = command.env("PRECAST_PROGRESS_S", "0").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        texts(&output).1
    };
    let adapter = ["--lora-rank", "2", "--steps", "1", "--untrained", "--eval-every", "1"];
    let run = said(case.distill(&case.path("run"), &adapter).arg("--eval-data").arg(&case.data));
    assert!(run.contains("held-out loss: 4 of 4 micro-batches (100 %) after "), "{run}");
    let mut writers = [["init", "--layers", "0"], ["merge", "--adapter", "run/adapter"]].map(|arguments| {
        let mut command = precast();
        command.args(arguments).current_dir(case.dir.path());
        command.arg("--out").arg(case.path(arguments[0]));
        command
    });
    writers[0].arg("--from").arg(&case.student);
    writers[1].arg("--model").arg(&case.student);
    for command in &mut writers {
        let written = said(command);
        assert!(written.contains("writing the model: 0.00 of 0.00 GiB (100 %) after "), "{written}");
    }
}
