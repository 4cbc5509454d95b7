//! A run that is killed anywhere continues as if it had not been: the same weights, the same metrics, and nothing left
//! behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::support::{Case, FOREVER, GPU_FIELDS, copy, names_in, precast, run_record, succeed, tiny_config};

const SIGKILL: i32 = 9;

/// One layer: a run is short, for it is repeated for each of its changes to the disk.
fn case() -> Case {
    let config = tiny_config(&[("num_hidden_layers", 1.into())]);
    Case::of([&config, &config], 17 * 9)
}

impl Case {
    fn killable_run(&self, out: &Path, steps: u32, every: u32, more: &[&str]) -> Command {
        let mut command = self.distill(out, &["--lr", "1e-2", "--shuffle", "true", "--seed", "3"]);
        command.args(["--steps", &steps.to_string(), "--checkpoint-every", &every.to_string()]).args(more);
        command.stdout(Stdio::null());
        command
    }

    /// The results of a run that nothing disturbs.
    fn undisturbed(&self, steps: u32, more: &[&str]) -> Results {
        let out = self.dir.path().join(format!("whole-{steps}"));
        succeed(&mut self.killable_run(&out, steps, 0, more));
        Results::of(&out)
    }
}

/// How a run in `out` is continued: from its checkpoint if it has one, else from the start.
fn continuation(out: &Path) -> &'static [&'static str] {
    let entries = || fs::read_dir(out).into_iter().flatten().flatten();
    let any = |prefix: &str| entries().any(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    match (any("checkpoint-"), any("run.json")) {
        (true, _) => &["--resume"],
        (false, true) => &["--overwrite"],
        // Killed while it replaced another: there is nothing at its place for a moment.
        (false, false) => &[],
    }
}

/// What must be the same.
#[derive(PartialEq)]
struct Results {
    weights: Vec<u8>,
    /// Lines of metrics.jsonl without their times.
    lines: Vec<Value>,
}

impl Results {
    fn of(out: &Path) -> Self {
        let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
        let lines = text.lines().map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            for time in ["step_ms", "tokens_per_s"] {
                assert!(line.as_object_mut().unwrap().remove(time).is_some());
            }
            let timed = |name: &str| name.starts_with("rollout_") || GPU_FIELDS.contains(&name);
            line.as_object_mut().unwrap().retain(|name, _| !timed(name));
            line
        });
        Self { lines: lines.collect(), weights: fs::read(out.join("student/model.safetensors")).unwrap() }
    }
}

/// The lines that a resumed run keeps: those of the steps of its last checkpoint.
fn kept(out: &Path) -> Vec<u8> {
    let steps = names_in_or_none(out).iter().filter_map(|name| name.strip_prefix("checkpoint-")?.parse().ok()).max();
    let text = fs::read(out.join("metrics.jsonl")).unwrap_or_default();
    text.split_inclusive(|byte| *byte == b'\n').take(steps.unwrap_or(0)).flatten().copied().collect()
}

/// A finished run is as one that nothing disturbed, and nothing else is there.
fn check(case: &Case, whole: &Results, kept: &[u8], what: &str) {
    let out = case.out();
    assert!(Results::of(&out) == *whole, "{what}: other results");
    assert!(fs::read(out.join("metrics.jsonl")).unwrap().starts_with(kept), "{what}: kept lines changed");
    let steps = whole.lines.len();
    let expected = [&format!("checkpoint-{steps}"), "metrics.jsonl", "report.html", "run.json", "run.log", "student"];
    assert_eq!(names_in(&out), expected, "{what}");
    let mut around = names_in(case.dir.path());
    around.retain(|name| name.starts_with(".precast") || name.starts_with("out"));
    assert_eq!(around, ["out"], "{what}");
    let record = run_record(&out);
    let parts: Vec<[u64; 2]> = record["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| [part["started_step"].as_u64().unwrap(), part["ended_step"].as_u64().unwrap()])
        .collect();
    assert!(parts[0][0] == 0 && parts.windows(2).all(|pair| pair[0][1] == pair[1][0]), "{what}: {parts:?}");
    assert_eq!(parts.last().unwrap()[1], steps as u64, "{what}");
    // The run owns all that is there: another may replace it.
    let listed = record["files"].as_object().unwrap();
    assert!(listed.contains_key("student/model.safetensors") && record["replacing"] == serde_json::json!({}), "{what}");
}

/// Kills a run at each change it makes to the disk, from the first to the last, and continues it.
fn kill_at_every_change(case: &Case, steps: u32, every: u32, prepare: impl Fn(&Path), start: &[&str]) -> u32 {
    let (whole, out) = (case.undisturbed(steps, &[]), case.out());
    for at in 1.. {
        let _ = fs::remove_dir_all(&out);
        prepare(&out);
        let mut command = case.killable_run(&out, steps, every, start);
        let status = command.env("PRECAST_KILL_AT", at.to_string()).status().unwrap();
        if status.success() {
            return at - 1;
        }
        assert_eq!(status.signal(), Some(SIGKILL), "change {at}: {status}");
        let kept = kept(&out);
        let mut again = case.killable_run(&out, steps, every, continuation(&out));
        let output = again.stderr(Stdio::piped()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        // Killed after its last change: nothing is left to do.
        if !message.contains("steps are done") {
            assert!(output.status.success(), "change {at}: {message}");
        }
        check(case, &whole, &kept, &format!("change {at}"));
    }
    unreachable!("a run makes finitely many changes")
}

#[test]
fn a_run_killed_at_any_change_to_the_disk_continues() {
    let case = case();
    let changes = kill_at_every_change(&case, 2, 1, |_| {}, &[]);
    // Two checkpoints of five files, two lines, a student, a report, and the record again and again.
    assert!(changes > 80, "{changes}");
}

#[test]
fn a_resumed_run_killed_at_any_change_to_the_disk_continues() {
    let case = case();
    // A finished run of one step, continued: its student and its report are replaced.
    let first = case.dir.path().join("first");
    succeed(&mut case.killable_run(&first, 1, 1, &[]));
    let prepare = |out: &Path| copy(&first, out);
    let changes = kill_at_every_change(&case, 2, 1, prepare, &["--resume"]);
    assert!(changes > 50, "{changes}");
}

#[test]
fn a_run_killed_at_any_change_while_it_replaces_another_loses_neither() {
    let case = case();
    let first = case.dir.path().join("first");
    succeed(&mut case.killable_run(&first, 1, 1, &[]));
    let (old, new) = (Results::of(&first), case.undisturbed(2, &[]));
    let out = case.out();
    for at in 1.. {
        let _ = fs::remove_dir_all(&out);
        copy(&first, &out);
        let mut command = case.killable_run(&out, 2, 2, &["--overwrite"]);
        let status = command.env("PRECAST_KILL_AT", at.to_string()).status().unwrap();
        if status.success() {
            return assert!(at > 40, "{at}");
        }
        assert_eq!(status.signal(), Some(SIGKILL), "change {at}: {status}");
        let checkpoint = names_in_or_none(&out).contains(&"checkpoint-2".to_owned());
        let moved = case.dir.path().join("out.replaced-1");
        let kept = || [&out, &moved].into_iter().any(|dir| dir.join("report.html").exists() && Results::of(dir) == old);
        assert!(checkpoint || kept(), "change {at}: the old run is gone and the new one has no checkpoint");
        let start = if checkpoint { "--resume" } else { "--overwrite" };
        let output = case.killable_run(&out, 2, 2, &[start]).stderr(Stdio::piped()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || message.contains("steps are done"), "change {at}: {message}");
        check(&case, &new, &[], &format!("change {at}"));
    }
}

fn names_in_or_none(dir: &Path) -> Vec<String> {
    if dir.exists() { names_in(dir) } else { Vec::new() }
}

/// `PRECAST_TEST_KILLS`, else so many.
fn kills(otherwise: u32) -> u32 {
    std::env::var("PRECAST_TEST_KILLS").map_or(otherwise, |kills| kills.parse().unwrap())
}

/// Kills runs of eight steps, up to three times each, whenever `wait` returns.
fn kill_at_random(
    case: &Case,
    kills: u32,
    more: &[&str],
    whole: &Results,
    mut wait: impl FnMut(&mut Child, &mut Pcg64Mcg),
) {
    let (steps, out) = (STEPS, case.out());
    let run = |every| {
        let more = [continuation(&out), more].concat();
        case.killable_run(&out, steps, every, &more)
    };
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut done = 0;
    while done < kills {
        let _ = fs::remove_dir_all(&out);
        let every = rng.random_range(1..=3);
        let mut bytes = Vec::new();
        for _ in 0..3 {
            let mut child = run(every).stderr(Stdio::null()).spawn().unwrap();
            wait(&mut child, &mut rng);
            child.kill().unwrap();
            let killed = child.wait().unwrap().signal() == Some(SIGKILL);
            let now = fs::read(out.join("metrics.jsonl")).unwrap_or_default();
            assert!(
                !killed || now.starts_with(&bytes) || !continuation(&out).contains(&"--resume"),
                "kept lines changed"
            );
            bytes = kept(&out);
            done += u32::from(killed);
            if !killed || done >= kills {
                break;
            }
        }
        let output = run(every).stderr(Stdio::piped()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || message.contains("steps are done"), "{message}");
        check(case, whole, &bytes, &format!("kill {done}"));
    }
}

/// Steps of runs that are killed at random moments.
const STEPS: u32 = 8;

#[test]
fn runs_killed_at_random_moments_continue() {
    let case = case();
    let whole = case.undisturbed(STEPS, &[]);
    // The time a run takes here says where the moments lie.
    let started = Instant::now();
    succeed(&mut case.killable_run(&case.dir.path().join("timed"), STEPS, 1, &[]));
    let run_us = started.elapsed().as_micros() as u64;
    let sleep =
        |_: &mut Child, rng: &mut Pcg64Mcg| std::thread::sleep(Duration::from_micros(rng.random_range(0..run_us)));
    kill_at_random(&case, kills(12), &[], &whole, sleep);
}

/// A student writes for most of a step: the moments lie in the steps, however long a run takes to start.
#[test]
fn runs_killed_while_they_write_or_learn_from_it_continue() {
    let case = case();
    let how = ["--on-policy", "--prompt-tokens", "3", "--max-tokens", "12", "--grad-accum", "2", "--precision", "bf16"];
    let whole = case.undisturbed(STEPS, &how);
    let step_ms = |line: &str| serde_json::from_str::<Value>(line).unwrap()["step_ms"].as_f64().unwrap();
    let metrics = fs::read_to_string(case.dir.path().join(format!("whole-{STEPS}/metrics.jsonl"))).unwrap();
    let step_us = (1e3 * metrics.lines().map(step_ms).sum::<f64>()) as u64 / u64::from(STEPS);
    let lines = || fs::read(case.out().join("metrics.jsonl")).unwrap_or_default().split(|byte| *byte == b'\n').count();
    let in_a_step = |child: &mut Child, rng: &mut Pcg64Mcg| {
        let (before, more) = (lines(), rng.random_range(1..4));
        // What was written behind the checkpoint goes first.
        let begun = Instant::now();
        while lines() < before + more && child.try_wait().unwrap().is_none() && begun.elapsed() < FOREVER {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(rng.random_range(0..step_us)));
    };
    kill_at_random(&case, kills(2), &how, &whole, in_a_step);
}

#[test]
fn a_new_model_killed_at_any_change_is_whole_or_not_there() {
    let case = case();
    let out = case.out();
    let init = |seed: &str, more: &[&str]| {
        let mut command = precast();
        command.arg("init").arg("--config").arg(case.dir.path().join("student.json")).args(["--seed", seed]);
        command.arg("--out").arg(&out).args(more).stdout(Stdio::null());
        command
    };
    let weights = || fs::read(out.join("model.safetensors")).ok();
    let made = |seed| {
        let _ = fs::remove_dir_all(&out);
        succeed(&mut init(seed, &[]));
        weights()
    };
    let (new, old) = (made("2"), made("1"));
    for at in 1.. {
        let status = init("2", &["--overwrite"]).env("PRECAST_KILL_AT", at.to_string()).status().unwrap();
        if status.success() {
            return assert!(at > 8, "{at}");
        }
        assert!(weights() == new || weights() == old, "change {at}");
        succeed(&mut init("1", &["--overwrite"]));
        assert!(weights() == old, "change {at}");
        let around: Vec<String> = names_in(case.dir.path()).into_iter().filter(|name| name.starts_with(".")).collect();
        assert!(around.is_empty(), "change {at}: {around:?}");
    }
}
