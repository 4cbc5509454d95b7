//! SIGHUP, SIGINT, SIGQUIT and SIGTERM: the step is finished, a checkpoint is written, and the message says how to go on.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    Case, heeding, is_note, metrics_of, names_in, precast, run_record, succeed, texts, tokenizer, train,
};

impl Case {
    fn stoppable_run(&self, out: &Path, arguments: &[&str]) -> Command {
        let mut command = self.distill(out, &["--lr", "1e-3"]);
        command.args(arguments);
        let mut command = heeding(&command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A model and one document that its tokenizer needs the better part of an hour for: the longest known beginning of what is left
    /// of a word is looked for from its end, and there are only single letters.
    fn slow(&self) -> (PathBuf, PathBuf) {
        let mut tokenizer = tokenizer("a ##a b");
        let model = &mut tokenizer["model"];
        model["type"] = "WordPiece".into();
        model["continuing_subword_prefix"] = "##".into();
        model["max_input_chars_per_word"] = 1_000_000.into();
        let student = self.student_with("slow", "tokenizer.json", tokenizer.to_string().as_bytes());
        let text = self.path("long.txt");
        fs::write(&text, "a".repeat(40_000)).unwrap();
        (student, text)
    }
}

fn signal(child: &Child, name: &str) {
    succeed(Command::new("kill").args(["-s", name, &child.id().to_string()]));
}

/// Waits until the program has printed a line with a text.
fn wait_for(child: &mut Child, text: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(text)), "no `{text}` was printed");
}

fn end(mut child: Child) -> (Option<i32>, String) {
    // What is not read would stop a program that prints.
    let mut stdout = child.stdout.take().unwrap();
    let drain = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    let output = child.wait_with_output().unwrap();
    drain.join().unwrap().unwrap();
    // Notes may come first, and the answer to a signal.
    let message = String::from_utf8(output.stderr).unwrap();
    let told = message.split_inclusive('\n').filter(|line| !is_note(line) && !line.starts_with("SIG"));
    (output.status.code(), told.collect())
}

#[test]
fn a_run_replaces_the_report_that_was_written_while_it_trained() {
    let case = Case::new(17 * 9);
    let out = case.dir.path().join("out");
    let mut child = case.stoppable_run(&out, &["--steps", "100000000"]).spawn().unwrap();
    wait_for(&mut child, "step 1/");
    succeed(precast().arg("report").arg(&out));
    signal(&child, "TERM");
    assert_eq!(end(child).0, Some(143));
    let record = run_record(&out);
    assert_eq!(record["outcome"]["status"], "stopped");
    assert!(record["files"].get("report.html").is_some(), "{record}");
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("<td>outcome</td><td>stopped</td>"));
}

#[test]
fn a_stopped_run_says_how_to_go_on_and_loses_nothing() {
    let case = Case::new(17 * 9);
    for (name, code, every) in [("INT", 130, "500"), ("QUIT", 131, "500"), ("TERM", 143, "0")] {
        let out = case.dir.path().join(format!("it's {name}"));
        let run = ["--steps", "1000000", "--log-every", "1", "--checkpoint-every", every];
        let mut child = case.stoppable_run(&out, &run).spawn().unwrap();
        wait_for(&mut child, "step 3/");
        signal(&child, name);
        let (status, message) = end(child);
        assert_eq!(status, Some(code), "{message}");
        let after = message.strip_prefix(&format!("stopped by SIG{name} after step ")).expect(&message);
        let step: u64 = after.split(' ').next().unwrap().parse().unwrap();
        assert!(step >= 3 && names_in(&out).contains(&format!("checkpoint-{step}")), "{message}");
        assert_eq!(run_record(&out)["parts"][0]["ended_step"], step);
        assert_eq!(fs::read_to_string(out.join("metrics.jsonl")).unwrap().lines().count() as u64, step);
        // The command that was said, with fewer steps.
        let said = message.lines().nth(1).unwrap().trim();
        assert!(said.ends_with(" --resume"), "{message}");
        let steps = format!("{said} --steps {}", step + 1);
        succeed(Command::new("sh").arg("-c").arg(&steps));
        let whole = case.dir.path().join(format!("whole {name}"));
        succeed(&mut case.stoppable_run(&whole, &["--steps", &(step + 1).to_string(), "--checkpoint-every", "0"]));
        let weights = |out: &Path| fs::read(out.join("student/model.safetensors")).unwrap();
        assert!(weights(&out) == weights(&whole));
    }
}

/// Both ends of the terminal are gone with it.
#[test]
fn a_run_whose_terminal_is_gone_stops_with_a_checkpoint() {
    let case = Case::new(17 * 9);
    let out = case.dir.path().join("out");
    let mut child = case.stoppable_run(&out, &["--steps", "1000000"]).spawn().unwrap();
    wait_for(&mut child, "step 1/");
    drop((child.stdout.take(), child.stderr.take()));
    signal(&child, "HUP");
    assert_eq!(child.wait().unwrap().code(), Some(129));
    assert!(names_in(&out).iter().any(|name| name.starts_with("checkpoint-")));
    assert_eq!(run_record(&out)["outcome"]["status"], "stopped");
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let case = Case::new(17 * 9);
    let out = case.dir.path().join("out");
    let run = case.stoppable_run(&out, &["--steps", "1000000", "--log-every", "1"]);
    // The last word on signals is nohup's: it stands before the program itself.
    let mut words = run.get_args();
    let mut command = Command::new("env");
    command.args(words.next()).arg("nohup").args(words);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&mut child, "step 1/");
    signal(&child, "HUP");
    let lines = fs::read_to_string(out.join("metrics.jsonl")).unwrap().lines().count();
    wait_for(&mut child, &format!("step {}/", lines + 5));
    signal(&child, "TERM");
    assert_eq!(end(child).0, Some(143));
}

#[test]
fn a_run_whose_metrics_are_deleted_writes_them_again_and_its_student() {
    let case = Case::new(17 * 9);
    let out = case.dir.path().join("out");
    let mut child =
        case.stoppable_run(&out, &["--steps", "30", "--grad-accum", "4", "--log-every", "1"]).spawn().unwrap();
    wait_for(&mut child, "step 3/");
    signal(&child, "STOP");
    fs::remove_file(out.join("metrics.jsonl")).unwrap();
    signal(&child, "CONT");
    assert_eq!(end(child), (Some(0), String::new()));
    assert_eq!(metrics_of(&out).len(), 30);
    assert!(out.join("student/model.safetensors").exists());
    assert_eq!(run_record(&out)["outcome"]["steps_done"], 30);
}

#[test]
fn a_start_that_is_stopped_leaves_nothing() {
    let case = Case::new(17 * 9);
    // The directory is there once signals are taken over; a busy machine may have come to the first step by then.
    let stopped = (0..50).any(|attempt| {
        let out = case.dir.path().join(format!("out-{attempt}"));
        let mut child = case.stoppable_run(&out, &["--steps", "1000000"]).spawn().unwrap();
        while !out.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        signal(&child, "TERM");
        let (status, message) = end(child);
        assert_eq!(status, Some(143), "{message}");
        let early = message == "stopped by SIGTERM before the first step\n";
        assert_eq!(early, !out.exists(), "{message}");
        early
    });
    assert!(stopped, "no start was stopped");
}

#[test]
fn a_start_that_tokenizes_stops_at_once_and_leaves_nothing() {
    let case = Case::new(17 * 9);
    let (student, text) = case.slow();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let out = case.path(name);
        let mut command = train(&student, &text, &out);
        command.args(["--batch-size", "2", "--seq-len", "16", "--steps", "1"]);
        let mut child = heeding(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !out.exists() {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        }
        signal(&child, name);
        let patience = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if patience.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("a minute after SIG{name} it tokenizes on");
            }
            std::thread::yield_now();
        }
        let (status, message) = end(child);
        assert_eq!((status, &*message), (Some(code), &*format!("stopped by SIG{name} before the first step\n")));
        assert!(!out.exists());
    }
}

#[test]
fn a_signal_is_answered_at_once_and_a_second_ends_the_run() {
    let case = Case::new(17 * 9);
    let out = case.dir.path().join("out");
    // One step takes longer than anybody waits.
    let long = ["--steps", "2", "--grad-accum", "100000", "--checkpoint-every", "0", "--untrained"];
    let mut child = case.stoppable_run(&out, &long).spawn().unwrap();
    while !out.join("metrics.jsonl").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    }
    signal(&child, "TERM");
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let answer = lines.find_map(|line| line.ok().filter(|line| !is_note(line))).unwrap();
    let stopping = "SIGTERM: stopping after step 1, with a checkpoint; again to stop now without one";
    assert_eq!(answer, format!("{stopping}, and the run cannot be resumed"));
    signal(&child, "INT");
    let (status, message) = end(child);
    assert!(matches!(status, Some(130 | 143)), "{status:?} {message}");
    assert!(!names_in(&out).iter().any(|name| name.starts_with("checkpoint")));
}

#[test]
fn a_program_without_steps_says_that_nothing_is_written() {
    let case = Case::new(17 * 9);
    let (model, text) = case.slow();
    let mut command = precast();
    command.args(["eval", "--device", "sim", "--model"]).arg(&model).arg("--data").arg(&text);
    let child = heeding(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A bit each of the signals that it has taken over, the lowest of signal 1.
    let takes_over = |status: String| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap() >> 1 & 1 == 1
    };
    while !takes_over(fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap()) {
        std::thread::yield_now();
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = texts(&output);
    assert_eq!(
        (output.status.code(), stdout, stderr),
        (Some(130), String::new(), "SIGINT: ending: nothing is written\n".into())
    );
}
