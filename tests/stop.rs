//! SIGHUP, SIGINT, SIGQUIT and SIGTERM: the step is finished, a checkpoint is written, and the message says how to go
//! on.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use crate::support::prelude::*;

/// A run that somebody stops.
fn run(case: &Case, out: impl AsRef<Path>, arguments: &str) -> Child {
    start(&case.distill(out, ["--lr 1e-3", arguments]))
}

/// A model and one document that its tokenizer needs the better part of an hour for: the longest known beginning of
/// what is left of a word is looked for from its end, and there are only single letters.
fn slow() -> Case {
    let case = Case::new(0);
    let mut tokenizer = tokenizer("a ##a b");
    let model = &mut tokenizer["model"];
    model["type"] = "WordPiece".into();
    model["continuing_subword_prefix"] = "##".into();
    model["max_input_chars_per_word"] = 1_000_000.into();
    case.write("student/tokenizer.json", tokenizer.to_string());
    case.write("long.txt", "a".repeat(40_000));
    case
}

fn has_checkpoint(case: &Case) -> bool {
    case.names("out").iter().any(|name| name.starts_with("checkpoint"))
}

/// Waits until the program has printed a line with a text.
fn wait_for(child: &mut Child, text: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(text)), "no `{text}` was printed");
}

#[test]
fn a_run_replaces_the_report_that_was_written_while_it_trained() {
    let case = Case::new(17 * 9);
    let mut child = run(&case, "out", "--steps 100000000");
    wait_for(&mut child, "step 1/");
    case.run("report out").succeeds();
    signal(&child, "TERM");
    ends(child, 143, "");
    let record = case.record("out");
    assert_eq!(record["outcome"]["status"], "stopped");
    assert!(record["files"].get("report.html").is_some(), "{record}");
    assert!(case.text("out/report.html").contains("<td>outcome</td><td>stopped</td>"));
}

#[test]
fn a_stopped_run_says_how_to_go_on_and_loses_nothing() {
    let case = Case::new(17 * 9);
    for (name, code, every) in [("INT", 130, "500"), ("QUIT", 131, "500"), ("TERM", 143, "0")] {
        let (out, whole) = (format!("it's {name}"), format!("whole {name}"));
        let mut child = run(&case, &out, &format!("--steps 1000000 --log-every 1 --checkpoint-every {every}"));
        wait_for(&mut child, "step 3/");
        signal(&child, name);
        let message = ends(child, code, "");
        let after = message.strip_prefix(&format!("stopped by SIG{name} after step ")).expect(&message);
        let step: u64 = after.split(' ').next().unwrap().parse().unwrap();
        assert!(step >= 3 && case.has(&format!("{out}/checkpoint-{step}")), "{message}");
        assert_eq!(case.record(&out)["parts"][0]["ended_step"], step);
        assert_eq!(case.metrics(&out).len() as u64, step);
        // The command that was said, with fewer steps.
        let said = message.lines().nth(1).unwrap().trim();
        assert!(said.ends_with(" --resume"), "{message}");
        Command::new("sh").arg("-c").arg(format!("{said} --steps {}", step + 1)).succeeds();
        case.distill(&whole, format!("--lr 1e-3 --steps {} --checkpoint-every 0", step + 1)).succeeds();
        assert!(case.weights(&out) == case.weights(&whole));
    }
}

/// Both ends of the terminal are gone with it.
#[test]
fn a_run_whose_terminal_is_gone_stops_with_a_checkpoint() {
    let case = Case::new(17 * 9);
    let mut child = run(&case, "out", "--steps 1000000");
    wait_for(&mut child, "step 1/");
    drop((child.stdout.take(), child.stderr.take()));
    signal(&child, "HUP");
    ends(child, 129, "");
    assert!(has_checkpoint(&case));
    assert_eq!(case.record("out")["outcome"]["status"], "stopped");
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let case = Case::new(17 * 9);
    let mut nohup = Command::new("env");
    // The last word on signals is nohup's: it stands before the program itself.
    nohup.args(["--default-signal=HUP,INT,QUIT,TERM", "nohup"]).stdin(Stdio::null());
    let mut nohup = under(nohup, &case.distill("out", "--lr 1e-3 --steps 1000000 --log-every 1"));
    let mut child = nohup.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&mut child, "step 1/");
    signal(&child, "HUP");
    let steps = case.text("out/metrics.jsonl").lines().count();
    wait_for(&mut child, &format!("step {}/", steps + 5));
    signal(&child, "TERM");
    ends(child, 143, "");
}

#[test]
fn a_run_whose_metrics_are_deleted_writes_them_again() {
    let case = Case::new(17 * 9);
    let mut child = run(&case, "out", "--steps 30 --grad-accum 4 --log-every 1");
    wait_for(&mut child, "step 3/");
    signal(&child, "STOP");
    fs::remove_file(case.path("out/metrics.jsonl")).unwrap();
    signal(&child, "CONT");
    assert_eq!(end(child), (Some(0), String::new()));
    assert_eq!(case.metrics("out").len(), 30);
    assert!(case.has("out/student/model.safetensors"));
    assert_eq!(case.record("out")["outcome"]["steps_done"], 30);
}

#[test]
fn a_start_that_is_stopped_leaves_nothing() {
    let case = Case::new(17 * 9);
    // The directory is there once signals are taken over; a busy machine may have come to the first step by then.
    let stopped = (0..50).any(|attempt| {
        let out = format!("out-{attempt}");
        let mut child = run(&case, &out, "--steps 1000000");
        while !case.has(&out) && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        signal(&child, "TERM");
        let message = ends(child, 143, "");
        let early = message == "stopped by SIGTERM before the first step";
        assert_eq!(early, !case.has(&out), "{message}");
        early
    });
    assert!(stopped, "no start was stopped");
}

#[test]
fn a_start_that_tokenizes_stops_at_once_and_leaves_nothing() {
    let case = slow();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = start(&case.train(name, "--data long.txt --steps 1"));
        while !case.has(name) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        }
        signal(&child, name);
        let patience = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if patience.elapsed() > Duration::from_secs(60) {
                kill(child);
                panic!("a minute after SIG{name} it tokenizes on");
            }
            std::thread::yield_now();
        }
        assert_eq!(ends(child, code, ""), format!("stopped by SIG{name} before the first step"));
        assert!(!case.has(name));
    }
}

#[test]
fn a_signal_is_answered_at_once_and_a_second_ends_the_run() {
    let case = Case::new(17 * 9);
    // One step takes longer than anybody waits.
    let mut child = run(&case, "out", "--steps 2 --grad-accum 100000 --checkpoint-every 0 --untrained");
    wait_while(&mut child, || !case.has("out/metrics.jsonl"));
    signal(&child, "TERM");
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let answer = lines.find_map(|line| line.ok().filter(|line| !is_note(line))).unwrap();
    let stopping = "SIGTERM: stopping after step 1, with a checkpoint; again to stop now without one";
    assert_eq!(answer, format!("{stopping}, and the run cannot be resumed"));
    signal(&child, "INT");
    let (status, message) = end(child);
    assert!(matches!(status, Some(130 | 143)), "{status:?} {message}");
    assert!(!has_checkpoint(&case));
}

#[test]
fn a_program_without_steps_says_that_nothing_is_written() {
    let case = slow();
    let child = start(&case.run("eval --device sim --model student --data long.txt"));
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
    assert_eq!((&*stdout, &*stderr), ("", "SIGINT: ending: nothing is written\n"));
    assert_eq!(output.status.code(), Some(130));
}
