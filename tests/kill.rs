//! A run that is killed anywhere continues as if it had not been: the same weights, the same metrics, and nothing left
//! behind.

use std::time::{Duration, Instant};

use precast::run::step::StepRecord;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::ranks::last_checkpoint;
use crate::support::FOREVER;
use crate::support::prelude::*;

/// One layer: a run is short, for it is repeated for each of its changes to the disk.
pub fn case() -> Case {
    Case::of_layers(1, 17 * 9)
}

pub fn run(case: &Case, out: &str, steps: u32, every: u32, more: &str) -> Command {
    let length = format!("--steps {steps} --checkpoint-every {every}");
    case.distill(out, ["--lr 1e-2 --shuffle true --seed 3", &length, more])
}

/// The results of a run that nothing disturbs.
pub fn undisturbed(case: &Case, steps: u32, more: &str) -> Results {
    run(case, "whole", steps, 0, more).succeeds();
    case.results("whole")
}

/// Results that a kill must not change.
pub type Results = (Vec<u8>, Vec<StepRecord>);

pub fn lines(case: &Case) -> Vec<u8> {
    fs::read(case.path("out/metrics.jsonl")).unwrap_or_default()
}

/// The lines that a resumed run keeps: those of the steps of its last checkpoint.
pub fn kept(case: &Case) -> Vec<u8> {
    let steps = if case.has("out") { last_checkpoint(&case.out()) } else { 0 };
    lines(case).split_inclusive(|byte| *byte == b'\n').take(steps as usize).flatten().copied().collect()
}

/// A finished run is as one that nothing disturbed, and nothing else is there.
fn check(case: &Case, whole: &Results, kept: &[u8], what: &str) {
    assert!(case.results("out") == *whole, "{what}: other results");
    assert!(lines(case).starts_with(kept), "{what}: kept lines changed");
    let steps = whole.1.len();
    let expected = [&format!("checkpoint-{steps}"), "metrics.jsonl", "report.html", "run.json", "run.log", "student"];
    assert_eq!(case.names("out"), expected, "{what}");
    let mut around = case.names("");
    around.retain(|name| name.starts_with(".precast") || name.starts_with("out"));
    assert_eq!(around, ["out"], "{what}");
    let record = case.record("out");
    let parts: Vec<u64> = list::<Value>(&record["parts"])
        .iter()
        .flat_map(|part| ["started_step", "ended_step"].map(|name| part[name].as_u64().unwrap()))
        .collect();
    let inner = parts[1..parts.len() - 1].chunks(2).all(|pair| pair[0] == pair[1]);
    assert!(parts[0] == 0 && inner && parts.last() == Some(&(steps as u64)), "{what}: {parts:?}");
    // The run owns all that is there: another may replace it.
    assert!(record["files"]["student/model.safetensors"].is_string() && record["replacing"] == json!({}), "{what}");
}

/// Kills a run of two steps at changes that it makes to the disk, from the first to the last, and continues it.
fn kill_at_every_change(case: &Case, prepare: impl Fn(&Path), start: &str) -> u32 {
    let (whole, out) = (undisturbed(case, 2, ""), case.out());
    for at in (1..).step_by(each_of(5)) {
        let _ = fs::remove_dir_all(&out);
        prepare(&out);
        if !is_killed_at(at, &mut run(case, "out", 2, 1, start)) {
            return at - 1;
        }
        let (kept, what) = (kept(case), format!("change {at}"));
        goes_on(&mut run(case, "out", 2, 1, continuation(&out)), &what);
        check(case, &whole, &kept, &what);
    }
    unreachable!("a run makes finitely many changes")
}

#[test]
fn a_run_killed_at_any_change_to_the_disk_continues() {
    let changes = kill_at_every_change(&case(), |_| {}, "");
    // Two checkpoints of five files, two lines, a student, a report, and the record again and again.
    assert!(changes > 80, "{changes}");
}

#[test]
fn a_resumed_run_killed_at_any_change_to_the_disk_continues() {
    let case = case();
    // A finished run of one step, continued: its student and its report are replaced.
    run(&case, "first", 1, 1, "").succeeds();
    let changes = kill_at_every_change(&case, |out| copy(&case.path("first"), out), "--resume");
    assert!(changes > 50, "{changes}");
}

#[test]
fn a_run_killed_while_it_replaces_another_loses_neither() {
    let case = case();
    run(&case, "first", 1, 1, "").succeeds();
    let (old, new) = (case.results("first"), undisturbed(&case, 2, ""));
    for at in (1..).step_by(each_of(5)) {
        let _ = fs::remove_dir_all(case.out());
        copy(&case.path("first"), &case.out());
        if !is_killed_at(at, &mut run(&case, "out", 2, 2, "--overwrite")) {
            return assert!(at > 40, "{at}");
        }
        let checkpoint = case.has("out/checkpoint-2");
        let is_old = |dir: &str| case.has(&format!("{dir}/report.html")) && case.results(dir) == old;
        let is_kept = checkpoint || ["out", "out.replaced-1"].into_iter().any(is_old);
        assert!(is_kept, "change {at}: the old run is gone and the new one has no checkpoint");
        let start = if checkpoint { "--resume" } else { "--overwrite" };
        goes_on(&mut run(&case, "out", 2, 2, start), &format!("change {at}"));
        check(&case, &new, &[], &format!("change {at}"));
    }
}

/// `PRECAST_TEST_KILLS`, else so many.
pub fn kills(otherwise: u32) -> u32 {
    std::env::var("PRECAST_TEST_KILLS").map_or(otherwise, |kills| kills.parse().unwrap())
}

/// Kills runs of eight steps, up to three times each, whenever `wait` returns.
fn kill_at_random(
    case: &Case,
    kills: u32,
    more: &str,
    whole: &Results,
    mut wait: impl FnMut(&mut Child, &mut Pcg64Mcg),
) {
    let out = case.out();
    let again = |every| run(case, "out", STEPS, every, &format!("{} {more}", continuation(&out)));
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut done = 0;
    while done < kills {
        let _ = fs::remove_dir_all(&out);
        let every = rng.random_range(1..=3);
        let mut bytes = Vec::new();
        for _ in 0..3 {
            let mut child = again(every).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            wait(&mut child, &mut rng);
            child.kill().unwrap();
            let killed = child.wait().unwrap().code().is_none();
            let is_kept = lines(case).starts_with(&bytes) || continuation(&out) != "--resume";
            assert!(!killed || is_kept, "kept lines changed");
            bytes = kept(case);
            done += u32::from(killed);
            if !killed || done >= kills {
                break;
            }
        }
        goes_on(&mut again(every), &format!("kill {done}"));
        check(case, whole, &bytes, &format!("kill {done}"));
    }
}

/// Steps of runs that are killed at random moments.
const STEPS: u32 = 8;

#[test]
fn runs_killed_at_random_moments_continue() {
    kill_at_random_moments(&case(), kills(12));
}

/// A run continues at a row that has begun the next micro-batch already.
#[test]
fn runs_of_packed_rows_killed_at_random_moments_continue() {
    let mut case = case();
    let row = |number: u32| format!("{{\"input_ids\": {:?}}}\n", (0..2 + number * 7 % 16).collect::<Vec<u32>>());
    case.data = case.write("rows.jsonl", (0..40).map(row).collect::<String>());
    kill_at_random_moments(&case, kills(20));
    let steps = case.metrics("out");
    assert!(steps.iter().any(|step| step.padding_share > Some(0.0)) && steps.len() == STEPS as usize);
}

fn kill_at_random_moments(case: &Case, kills: u32) {
    let whole = undisturbed(case, STEPS, "");
    // The time a run takes here says where the moments lie.
    let started = Instant::now();
    run(case, "timed", STEPS, 1, "").succeeds();
    let run_us = started.elapsed().as_micros() as u64;
    let sleep =
        |_: &mut Child, rng: &mut Pcg64Mcg| std::thread::sleep(Duration::from_micros(rng.random_range(0..run_us)));
    kill_at_random(case, kills, "", &whole, sleep);
}

/// A student writes for most of a step: the moments lie in the steps, however long a run takes to start.
#[test]
fn runs_killed_while_they_write_or_learn_from_it_continue() {
    let case = case();
    let how = "--on-policy --prompt-tokens 3 --max-tokens 12 --grad-accum 2 --precision bf16";
    let whole = undisturbed(&case, STEPS, how);
    let step_ms: f64 = case.metrics("whole").iter().map(|step| step.step_ms).sum();
    let step_us = (1e3 * step_ms) as u64 / u64::from(STEPS);
    let count = || lines(&case).split(|byte| *byte == b'\n').count();
    let in_a_step = |child: &mut Child, rng: &mut Pcg64Mcg| {
        let (before, more) = (count(), rng.random_range(1..4));
        // What was written behind the checkpoint goes first.
        let begun = Instant::now();
        while count() < before + more && child.try_wait().unwrap().is_none() && begun.elapsed() < FOREVER {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(rng.random_range(0..step_us)));
    };
    kill_at_random(&case, kills(2), how, &whole, in_a_step);
}

#[test]
fn a_new_model_killed_at_any_change_is_whole_or_not_there() {
    let case = case();
    let init = |seed: &str, more: &str| case.run(["init --config student.json --out out --seed", seed, more]);
    let weights = || fs::read(case.path("out/model.safetensors")).ok();
    let made = |seed| {
        init(seed, "--overwrite").succeeds();
        weights()
    };
    let (new, old) = (made("2"), made("1"));
    for at in 1.. {
        if !is_killed_at(at, &mut init("2", "--overwrite")) {
            return assert!(at > 8, "{at}");
        }
        assert!(weights() == new || weights() == old, "change {at}");
        assert!(made("1") == old, "change {at}");
        let around: Vec<String> = case.names("").into_iter().filter(|name| name.starts_with(".")).collect();
        assert!(around.is_empty(), "change {at}: {around:?}");
    }
}
