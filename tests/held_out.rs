//! Held-out losses inside a run, the checkpoint that is best by them, and what people look at.

use std::fs;
use std::process::Command;

use precast::run::step::HeldOutRecord;

use crate::support::{Case, fail, metrics_of, names_in, precast, run_record, succeed, texts, token_file};

impl Case {
    fn scored_run(&self, out: &str, arguments: &[&str]) -> Command {
        let held_out = token_file(self.dir.path(), "held-out.bin", 17 * 3, 96);
        let mut command = self.distill(&self.path(out), &["--precision", "fp32", "--lr", "1e-2"]);
        command.arg("--eval-data").arg(held_out).args(arguments);
        command
    }

    fn scores(&self, out: &str) -> Vec<(u64, HeldOutRecord)> {
        let records = metrics_of(&self.path(out));
        records.into_iter().filter_map(|record| Some((record.step, record.held_out?))).collect()
    }
}

fn weights(case: &Case, out: &str) -> Vec<u8> {
    fs::read(case.path(out).join("student/model.safetensors")).unwrap()
}

/// Scoring launches what a step launches, and changes no bit of the steps after it; what it says is what `eval` says.
#[test]
fn held_out_losses_are_those_of_eval_and_change_nothing() {
    let case = Case::new(17 * 9);
    let every = ["--steps", "4", "--checkpoint-every", "0", "--eval-every", "2"];
    succeed(&mut case.scored_run("scored", &every));
    succeed(&mut case.distill(
        &case.path("plain"),
        &["--precision", "fp32", "--lr", "1e-2", "--steps", "4", "--checkpoint-every", "0"],
    ));
    assert!(weights(&case, "scored") == weights(&case, "plain"));
    let scores = case.scores("scored");
    assert_eq!(scores.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [2, 4]);
    let last = &scores[1].1;
    assert_eq!(last.eval_tokens, 3 * 16);
    let loss = 0.5 * 4.0 * last.eval_kd_loss.unwrap() + 0.5 * last.eval_ce_loss.unwrap();
    assert!((last.eval_loss.unwrap() / loss - 1.0).abs() < 1e-6);
    let mut eval = precast();
    eval.args(["eval", "--json", "--untrained", "--seq-len", "16", "--data"]).arg(case.path("held-out.bin"));
    eval.arg("--model").arg(case.path("scored/student")).args(crate::support::on_device());
    let eval: serde_json::Value = serde_json::from_str(&succeed(&mut eval)).unwrap();
    let nll = eval["nll"].as_f64().unwrap();
    assert!((last.eval_ce_loss.unwrap() / nll - 1.0).abs() < 1e-5, "{last:?} {nll}");
    let report = fs::read_to_string(case.path("scored/report.html")).unwrap();
    assert!(report.contains("eval_loss, held out") && report.contains("eval_kd_loss, held out"));
}

#[test]
fn the_best_checkpoint_stays_beside_the_latest() {
    let case = Case::new(17 * 9);
    // The first steps learn and later ones, at a rate that is far too high, unlearn.
    let run = ["--checkpoint-every", "1", "--warmup", "8", "--lr", "2", "--clip", "0", "--allow-divergence"];
    succeed(case.scored_run("out", &["--steps", "6"]).args(run));
    let scores = case.scores("out");
    assert_eq!(scores.len(), 6);
    let best = scores.iter().min_by(|a, b| a.1.eval_loss.unwrap().total_cmp(&b.1.eval_loss.unwrap())).unwrap();
    assert_ne!(best.0, 6, "{scores:?}");
    let expected = [format!("checkpoint-{}", best.0), "checkpoint-6".to_owned()];
    let checkpoints = || -> Vec<String> {
        names_in(&case.path("out")).into_iter().filter(|name| name.starts_with("checkpoint-")).collect()
    };
    assert_eq!(checkpoints(), expected);
    let record = run_record(&case.path("out"));
    assert_eq!((&record["best"]["step"], record["best"]["eval_loss"].as_f64()), (&best.0.into(), best.1.eval_loss));
    // A run that continues keeps it, and the score that made it the best.
    succeed(case.scored_run("out", &["--steps", "7", "--resume"]).args(run));
    assert_eq!(checkpoints(), [expected[0].clone(), "checkpoint-7".to_owned()]);
    // By other data it starts again: the score that made that one the best says nothing of these.
    let other = token_file(case.dir.path(), "other.bin", 17 * 2, 96);
    let mut command =
        case.distill(&case.path("out"), &["--precision", "fp32", "--lr", "1e-2", "--steps", "8", "--resume"]);
    let output = command.arg("--eval-data").arg(&other).args(run).output().unwrap();
    let change = "--eval-data is of other tokens: the best checkpoint is that of the steps after 7";
    let (_, stderr) = texts(&output);
    assert!(output.status.success() && stderr.contains(&format!("note: {change}\n")), "{stderr}");
    assert_eq!(checkpoints(), ["checkpoint-8"]);
    let record = run_record(&case.path("out"));
    assert_eq!((&record["best"]["step"], &record["held_out"]["after_step"]), (&8.into(), &7.into()));
    let changed = record["parts"][2]["changed"].as_array().unwrap();
    assert!(changed.contains(&change.into()), "{changed:?}");
}

#[test]
fn what_cannot_be_scored_is_refused_before_the_first_step() {
    let case = Case::new(17 * 9);
    let mut command = case.distill(&case.out(), &["--steps", "1", "--eval-every", "2"]);
    assert!(fail(&mut command, 2).contains("--eval-every needs data to compute the loss of: give --eval-data"));
    let short = token_file(case.dir.path(), "short.bin", 5, 96);
    let mut command = case.distill(&case.out(), &["--steps", "1", "--eval-data"]);
    assert!(fail(command.arg(&short), 5).contains("short.bin: 5 tokens do not fill one chunk"));
    assert!(!case.out().exists());
}

#[test]
fn output_that_nobody_watches_has_a_line_every_so_many_steps() {
    let case = Case::new(17 * 9);
    let said = succeed(&mut case.distill(&case.out(), &["--steps", "7", "--log-every", "3"]));
    let steps: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("step ")?.split('/').next()).collect();
    assert_eq!(steps, ["1", "3", "6", "7"]);
    assert_eq!(metrics_of(&case.out()).len(), 7);
}

/// The event file is the run's: listed, replaced while the run goes on, and gone with a run that is replaced.
#[test]
fn an_event_file_is_written_whole_and_owned() {
    let case = Case::new(17 * 9);
    let events = case.path("out/events.out.tfevents.precast");
    let run = ["--tensorboard", "--checkpoint-every", "1"];
    succeed(case.scored_run("out", &["--steps", "2"]).args(run));
    let first = fs::read(&events).unwrap();
    succeed(case.scored_run("out", &["--steps", "3", "--resume"]).args(run));
    let second = fs::read(&events).unwrap();
    assert!(second.starts_with(&first) && second.len() > first.len());
    assert!(run_record(&case.path("out"))["files"].get("events.out.tfevents.precast").is_some());
    succeed(case.scored_run("out", &["--steps", "1", "--overwrite"]).args(["--checkpoint-every", "1"]));
    assert!(!events.exists());
}
