//! `run.log`: what a run prints, with times, over all its parts.

use std::os::unix::fs::symlink;

use precast_fatbins::Digest;

use crate::support::prelude::*;

fn run(case: &Case, arguments: &str) -> Command {
    // One note at least.
    let notes = "--teacher-format stored";
    case.distill("out", ["--lr 1e-3 --checkpoint-every 1 --log-every 1", notes, arguments])
}

/// The lines of a log without their times, which do not fall.
fn lines(case: &Case, name: &str) -> Vec<String> {
    let text = case.text(format!("out/{name}"));
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
fn assert_recorded(case: &Case, name: &str) {
    let logs = &case.record("out")["logs"][name];
    let text = case.read(format!("out/{name}"));
    let first = &text[..logs["bytes"].as_u64().unwrap() as usize];
    assert!(!first.is_empty() && logs["sha256"] == Digest::of(first).to_string(), "{logs}");
}

#[test]
fn a_run_keeps_what_it_prints_over_its_parts() {
    let case = Case::new(17 * 9);
    let mut so_far = Vec::new();
    for arguments in ["--steps 2 --verbose", "--steps 3 --resume"] {
        let [stdout, stderr] = run(&case, arguments).env("SOME_SECRET", "hunter2").says();
        assert!(stderr.contains("note: ") && stdout.contains("step 2/") != stdout.contains("step 3/"));
        let now = lines(&case, "run.log");
        assert!(now.starts_with(&so_far));
        assert_holds(&now[so_far.len()..], [&stdout, &stderr]);
        assert!(!case.text("out/run.log").contains("hunter2"));
        so_far = now;
        assert_recorded(&case, "run.log");
        // Each once, though both parts have said it.
        let notes: Vec<String> = list(&case.record("out")["notes"]);
        let said = |note: &&String| note.starts_with("neither model has a tokenizer");
        assert_eq!(notes.iter().filter(said).count(), 1, "{notes:?}");
    }
}

#[test]
fn why_a_run_failed_is_in_its_log() {
    let case = Case::new(17 * 9);
    let message = run(&case, "--steps 20 --lr 1e30").fails(1, "");
    let logged = lines(&case, "run.log");
    assert!(message.lines().all(|line| logged.iter().any(|logged| logged == line)), "{message} {logged:#?}");
}

/// What is in the place of the log stays, and is no log of the run; a log that is gone begins again.
#[test]
fn a_log_that_cannot_be_written_is_a_note_and_ends_nothing() {
    let case = Case::new(17 * 9);
    let log = case.path("out/run.log");
    run(&case, "--steps 1").succeeds();
    case.write("mine", "mine");
    let changed = case.text("out/run.log").replacen("note: ", "Note: ", 1);
    let resume = |steps: u32| {
        let [_, stderr] = run(&case, &format!("--resume --steps {steps}")).says();
        stderr
    };
    let refused = |what: &str| format!("cannot write {}: {what}", log.display());
    case.write("out/run.log", &changed);
    assert!(resume(2).contains(&refused("it was changed since it was written: what this run prints from")));
    assert_eq!(case.text("out/run.log"), changed);
    assert!(case.record("out")["notes"].to_string().contains("run.log: it was changed since"));
    run(&case, "--overwrite --steps 1").fails(2, "out/run.log was changed since it was written");
    fs::remove_file(&log).unwrap();
    symlink(case.path("mine"), &log).unwrap();
    assert!(resume(3).contains(&refused("")));
    assert_eq!(case.text("mine"), "mine");
    fs::remove_file(&log).unwrap();
    let stderr = resume(4);
    assert!(
        !stderr.contains("cannot write") && lines(&case, "run.log").iter().any(|line| line.starts_with("step 4/4"))
    );
    assert_recorded(&case, "run.log");
}

/// A file of that name in the directory of a run that keeps no log, as earlier versions did not, is somebody else's.
#[test]
fn a_file_of_the_name_that_the_run_did_not_write_stays() {
    let case = Case::new(17 * 9);
    run(&case, "--steps 1").succeeds();
    case.change("out/run.json", |record| _ = record.as_object_mut().unwrap().remove("logs"));
    case.write("out/run.log", "mine");
    let [_, stderr] = run(&case, "--resume --steps 2").says();
    assert!(stderr.contains("run.log: this run did not write it"), "{stderr}");
    assert_eq!(case.text("out/run.log"), "mine");
    assert_eq!(case.record("out")["logs"], Value::Null);
    run(&case, "--overwrite --steps 1").fails(2, "run.log is not listed");
}

/// Between the listing of a rank's log in `run.json` and its first line.
#[test]
fn a_file_in_the_place_of_a_log_that_never_came_stays() {
    let case = Case::new(17 * 9);
    run(&case, "--steps 1").succeeds();
    let nothing = json!({ "bytes": 0, "sha256": Digest::of(b"").to_string() });
    case.change("out/run.json", |record| record["logs"]["run.rank-1.log"] = nothing);
    case.write("out/run.rank-1.log", "mine");
    run(&case, "--steps 1 --overwrite").fails(2, "run.rank-1.log was changed");
    assert_eq!(case.text("out/run.rank-1.log"), "mine");
}

#[test]
fn ranks_keep_their_notes_and_no_token() {
    skip_if!(is_on_gpu());
    let case = Case::new(17 * 9);
    let token = "0123456789abcdef0123456789abcdef";
    let run = |arguments: &str| {
        run(&case, arguments).env("PRECAST_TOKEN", token).env("SOME_SECRET", "hunter2").succeeds();
    };
    run("--steps 1 --gpus 2");
    let of_rank = lines(&case, "run.rank-1.log");
    assert!(of_rank.iter().any(|line| line.starts_with("note: neither model has a tokenizer")), "{of_rank:#?}");
    run("--steps 2 --gpus 2 --resume");
    // One rank goes on alone: the other's log stays, and is the run's.
    run("--steps 3 --resume");
    assert!(lines(&case, "run.rank-1.log").len() > of_rank.len());
    for name in ["run.log", "run.rank-1.log"] {
        assert_recorded(&case, name);
        let text = case.text(format!("out/{name}"));
        // The launcher makes a token of its own, 64 digits: all of that length are digests that run.json has.
        let digests = text.split(|one: char| !one.is_ascii_hexdigit()).filter(|digits| digits.len() >= 64);
        let known = case.text("out/run.json");
        assert!(digests.into_iter().all(|digest| known.contains(digest)), "{text}");
        assert!(!text.contains(token) && !text.contains("hunter2"), "{text}");
    }
    assert_eq!(case.record("out")["replacing"], json!({}));
    run("--steps 1 --overwrite");
    assert!(!case.has("out/run.rank-1.log"));
}
