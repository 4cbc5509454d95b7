//! `run.log`: what a run prints, with times, over all its parts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use precast_fatbins::Digest;
use serde_json::{Value, json};

use crate::support::{Case, fail, is_sim, names_in, run_record, skipped, succeed, texts};

impl Case {
    fn logged_run(&self, arguments: &[&str]) -> Command {
        let mut command = self.distill(&self.out(), &["--lr", "1e-3", "--checkpoint-every", "1", "--log-every", "1"]);
        // One note at least.
        command.args(["--teacher-format", "stored"]).args(arguments);
        command
    }
}

/// The lines of a log without their times, which do not fall.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let (times, lines): (Vec<String>, Vec<String>) = text
        .lines()
        .map(|line| {
            let (time, rest) = line.split_at("2026-01-01T00:00:00Z".len());
            let shape: String = time.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
            assert_eq!(shape, "0000-00-00T00:00:00Z", "{line}");
            (time.to_owned(), rest.strip_prefix(' ').unwrap_or(rest).to_owned())
        })
        .unzip();
    assert!(times.is_sorted(), "{text}");
    lines
}

/// Both outputs of a command, line by line; of either the order is kept.
fn assert_holds(log: &[String], printed: [&str; 2]) {
    for text in printed {
        let mut rest = log.iter();
        for line in text.lines() {
            assert!(rest.any(|logged| logged == line.trim_end()), "no `{line}` in {log:#?}");
        }
    }
    assert_eq!(log.len(), printed.iter().map(|text| text.lines().count()).sum::<usize>(), "{log:#?}");
}

/// What `run.json` says of a log is so of its first bytes.
fn assert_recorded(out: &Path, name: &str) {
    let logs = &run_record(out)["logs"][name];
    let text = fs::read(out.join(name)).unwrap();
    let first = &text[..logs["bytes"].as_u64().unwrap() as usize];
    assert!(!first.is_empty() && logs["sha256"] == Digest::of(first).to_string(), "{logs}");
}

#[test]
fn a_run_keeps_what_it_prints_over_its_parts() {
    let case = Case::new(17 * 9);
    let log = case.out().join("run.log");
    let mut so_far = Vec::new();
    for arguments in [&["--steps", "2", "--verbose"][..], &["--steps", "3", "--resume"]] {
        let output = case.logged_run(arguments).env("SOME_SECRET", "hunter2").output().unwrap();
        let (stdout, stderr) = texts(&output);
        assert!(
            output.status.success()
                && stderr.contains("note: ")
                && stdout.contains("step 2/") != stdout.contains("step 3/")
        );
        let now = lines(&log);
        assert!(now.starts_with(&so_far));
        assert_holds(&now[so_far.len()..], [&stdout, &stderr]);
        assert!(!fs::read_to_string(&log).unwrap().contains("hunter2"));
        so_far = now;
        assert_recorded(&case.out(), "run.log");
        // Each once, though both parts have said it.
        let notes = run_record(&case.out())["notes"].clone();
        let said = |note: &&Value| note.as_str().unwrap().starts_with("neither model has a tokenizer");
        assert_eq!(notes.as_array().unwrap().iter().filter(said).count(), 1, "{notes}");
    }
}

#[test]
fn why_a_run_failed_is_in_its_log() {
    let case = Case::new(17 * 9);
    let message = fail(&mut case.logged_run(&["--steps", "20", "--lr", "1e30"]), 1);
    let logged = lines(&case.out().join("run.log"));
    assert!(message.lines().all(|line| logged.iter().any(|logged| logged == line)), "{message} {logged:#?}");
}

/// What is in the place of the log stays, and is no log of the run; a log that is gone begins again.
#[test]
fn a_log_that_cannot_be_written_is_a_note_and_ends_nothing() {
    let case = Case::new(17 * 9);
    let (out, mine) = (case.out(), case.path("mine"));
    let log = out.join("run.log");
    succeed(&mut case.logged_run(&["--steps", "1"]));
    fs::write(&mine, "mine").unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let changed = text.replacen("note: ", "Note: ", 1);
    let resume = |steps: u32| {
        let output = case.logged_run(&["--resume", "--steps", &steps.to_string()]).output().unwrap();
        let (_, stderr) = texts(&output);
        assert!(output.status.success(), "{stderr}");
        stderr
    };
    let refused = |what: &str| format!("cannot write {}: {what}", log.display());
    fs::write(&log, &changed).unwrap();
    assert!(resume(2).contains(&refused("it was changed since it was written: what this run prints from")));
    assert_eq!(fs::read_to_string(&log).unwrap(), changed);
    assert!(run_record(&out)["notes"].to_string().contains("run.log: it was changed since"));
    let message = fail(&mut case.logged_run(&["--overwrite", "--steps", "1"]), 2);
    assert!(message.contains("out/run.log was changed since it was written"), "{message}");
    fs::remove_file(&log).unwrap();
    symlink(&mine, &log).unwrap();
    assert!(resume(3).contains(&refused("")));
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    fs::remove_file(&log).unwrap();
    let stderr = resume(4);
    assert!(!stderr.contains("cannot write") && lines(&log).iter().any(|line| line.starts_with("step 4/4")));
    assert_recorded(&out, "run.log");
}

/// A file of that name in the directory of a run that keeps no log, as earlier versions did not, is somebody else's.
#[test]
fn a_file_of_the_name_that_the_run_did_not_write_stays() {
    let case = Case::new(17 * 9);
    let out = case.out();
    succeed(&mut case.logged_run(&["--steps", "1"]));
    let mut record = run_record(&out);
    record.as_object_mut().unwrap().remove("logs");
    fs::write(out.join("run.json"), record.to_string()).unwrap();
    fs::write(out.join("run.log"), "mine").unwrap();
    let output = case.logged_run(&["--resume", "--steps", "2"]).output().unwrap();
    let (_, stderr) = texts(&output);
    assert!(output.status.success() && stderr.contains("run.log: this run did not write it"), "{stderr}");
    assert_eq!(fs::read_to_string(out.join("run.log")).unwrap(), "mine");
    assert_eq!(run_record(&out)["logs"], Value::Null);
    let message = fail(&mut case.logged_run(&["--overwrite", "--steps", "1"]), 2);
    assert!(message.contains("run.log is not listed"), "{message}");
}

/// As `precast distill ... | tee -a DIR/run.log` does.
#[test]
fn what_others_append_to_a_log_is_not_deleted_until_somebody_does() {
    let case = Case::new(17 * 9);
    succeed(&mut case.logged_run(&["--steps", "1"]));
    let log = case.out().join("run.log");
    let text = fs::read_to_string(&log).unwrap() + "mine\n";
    fs::write(&log, &text).unwrap();
    let message = fail(&mut case.logged_run(&["--steps", "1", "--overwrite"]), 2);
    assert!(
        message.contains("run.log was changed since it was written: something else writes to it, too"),
        "{message}"
    );
    assert_eq!(fs::read_to_string(&log).unwrap(), text);
    let (_, command) = message.lines().find_map(|line| line.split_once("if nothing in it is needed: ")).unwrap();
    succeed(Command::new("sh").arg("-c").arg(command));
    succeed(&mut case.logged_run(&["--steps", "1", "--overwrite"]));
}

/// Between the listing of a rank's log in `run.json` and its first line.
#[test]
fn a_file_in_the_place_of_a_log_that_never_came_stays() {
    let case = Case::new(17 * 9);
    succeed(&mut case.logged_run(&["--steps", "1"]));
    let mut record = run_record(&case.out());
    record["logs"]["run.rank-1.log"] = json!({ "bytes": 0, "sha256": Digest::of(b"").to_string() });
    fs::write(case.out().join("run.json"), record.to_string()).unwrap();
    let mine = case.out().join("run.rank-1.log");
    fs::write(&mine, "mine").unwrap();
    let message = fail(&mut case.logged_run(&["--steps", "1", "--overwrite"]), 2);
    assert!(message.contains("run.rank-1.log was changed"), "{message}");
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
}

#[test]
fn a_run_that_is_replaced_takes_its_log_with_it() {
    let case = Case::new(17 * 9);
    succeed(&mut case.logged_run(&["--steps", "2"]));
    succeed(&mut case.logged_run(&["--steps", "1", "--overwrite"]));
    assert!(!lines(&case.out().join("run.log")).iter().any(|line| line.starts_with("step 2/2")));
    assert!(!names_in(case.dir.path()).iter().any(|name| name.contains("replaced")));
}

#[test]
fn ranks_keep_their_notes_and_no_token() {
    if skipped(!is_sim(), "it is of simulated GPUs") {
        return;
    }
    let case = Case::new(17 * 9);
    let out = case.out();
    let token = "0123456789abcdef0123456789abcdef";
    let run = |arguments: &[&str]| {
        let mut command = case.logged_run(arguments);
        command.env("PRECAST_TOKEN", token).env("SOME_SECRET", "hunter2");
        succeed(&mut command)
    };
    run(&["--steps", "1", "--gpus", "2"]);
    let of_rank = lines(&out.join("run.rank-1.log"));
    assert!(of_rank.iter().any(|line| line.starts_with("note: neither model has a tokenizer")), "{of_rank:#?}");
    run(&["--steps", "2", "--gpus", "2", "--resume"]);
    // One rank goes on alone: the other's log stays, and is the run's.
    run(&["--steps", "3", "--resume"]);
    assert!(lines(&out.join("run.rank-1.log")).len() > of_rank.len());
    for name in ["run.log", "run.rank-1.log"] {
        assert_recorded(&out, name);
        let text = fs::read_to_string(out.join(name)).unwrap();
        // The launcher makes a token of its own, 64 digits: all of that length are digests that run.json has.
        let digests = text.split(|one: char| !one.is_ascii_hexdigit()).filter(|digits| digits.len() >= 64);
        let known = run_record(&out).to_string();
        assert!(digests.into_iter().all(|digest| known.contains(digest)), "{text}");
        assert!(!text.contains(token) && !text.contains("hunter2"), "{text}");
    }
    assert_eq!(run_record(&out)["replacing"], json!({}));
    run(&["--steps", "1", "--overwrite"]);
    assert!(!names_in(&out).contains(&"run.rank-1.log".to_owned()));
}
