//! Held-out losses inside a run, the checkpoint that is best by them, and what people look at.

use std::fs;
use std::process::Command;

use precast::run::sample::SampleRecord;
use precast::run::step::HeldOutRecord;

use crate::support::{
    Case, fail, is_sim, metrics_of, names_in, precast, run_record, skipped, succeed, texts, token_file,
};

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

/// The report ends with what the student that is written goes on with.
#[test]
fn samples_are_those_of_generate() {
    let case = Case::new(17 * 9);
    succeed(&mut case.scored_run("out", &["--steps", "2", "--checkpoint-every", "0"]));
    let record = run_record(&case.path("out"));
    let samples: Vec<SampleRecord> = serde_json::from_value(record["samples"].clone()).unwrap();
    // Sequences of 16 tokens, whose first quarter is the prompt: 17 of the file.
    let held_out = fs::read(case.path("held-out.bin")).unwrap();
    let held_out: Vec<u32> = held_out.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().unwrap())).collect();
    let text = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let prompts = case.path("prompts.jsonl");
    let rows = held_out.chunks_exact(17).map(|chunk| format!("{{\"input_ids\": {:?}}}\n", &chunk[..4]));
    fs::write(&prompts, rows.collect::<String>()).unwrap();
    let mut generate = precast();
    generate.args(["generate", "--sampling-temperature", "0", "--seq-len", "16", "--data"]).arg(prompts);
    generate.arg("--model").arg(case.path("out/student")).arg("--out").arg(case.path("completions.jsonl"));
    succeed(generate.args(crate::support::on_device()));
    let completions = fs::read_to_string(case.path("completions.jsonl")).unwrap();
    assert_eq!((samples.len(), completions.lines().count()), (3, 3));
    for ((sample, chunk), line) in samples.iter().zip(held_out.chunks_exact(17)).zip(completions.lines()) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let ids: Vec<u32> = serde_json::from_value(line["input_ids"].clone()).unwrap();
        assert_eq!((sample.step, &sample.prompt, &sample.reference), (2, &text(&chunk[..4]), &text(&chunk[4..])));
        assert_eq!(sample.completion, text(&ids[4..]));
    }
    let report = fs::read_to_string(case.path("out/report.html")).unwrap();
    assert!(report.contains("Completions of held-out prompts after step 2") && report.contains(&samples[0].completion));
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

/// Learns first, and unlearns at a rate that is far too high: the best of six steps is not the last.
const RISES: [&str; 12] =
    ["--steps", "6", "--checkpoint-every", "6", "--eval-every", "1", "--warmup", "8", "--lr", "2", "--clip", "0"];

fn rising(case: &Case, out: &str, more: &[&str]) -> Command {
    let mut command = case.scored_run(out, &RISES);
    command.arg("--allow-divergence").args(more);
    command
}

fn best(case: &Case, out: &str) -> u64 {
    let scores = case.scores(out);
    scores.iter().min_by(|a, b| a.1.eval_loss.unwrap().total_cmp(&b.1.eval_loss.unwrap())).unwrap().0
}

fn names(case: &Case, out: &str) -> Vec<String> {
    let mut names = names_in(&case.path(out));
    names.retain(|name| name.starts_with("checkpoint") || name.starts_with("student") || name.starts_with("adapter"));
    names
}

/// The best step's weights are those that a run of as many steps leaves.
#[test]
fn the_best_student_is_that_of_a_run_up_to_its_step() {
    let case = Case::new(17 * 9);
    let printed = succeed(&mut rising(&case, "both", &["--final", "both"]));
    let step = best(&case, "both");
    assert!((2..6).contains(&step), "{step}");
    let lines = ["student (step 6)\n".to_owned(), format!("student.best (step {step})\n")];
    assert!(lines.iter().all(|line| printed.contains(line.as_str())), "{printed}");
    let checkpoint = format!("checkpoint-{step}");
    assert_eq!(names(&case, "both"), [&checkpoint, "checkpoint-6", "student", "student.best"]);
    let record = run_record(&case.path("both"));
    assert_eq!((&record["student"]["step"], &record["student.best"]["step"]), (&6.into(), &step.into()));
    let report = fs::read_to_string(case.path("both/report.html")).unwrap();
    assert!(report.contains(&format!("student of step 6, student.best of step {step}<")));
    let short = step.to_string();
    succeed(&mut rising(&case, "short", &["--steps", &short]));
    succeed(&mut rising(&case, "last", &[]));
    succeed(&mut rising(&case, "best", &["--final", "best"]));
    let model = |path: &str| fs::read(case.path(path).join("model.safetensors")).unwrap();
    assert!(model("both/student.best") == model("short/student") && model("both/student") == model("last/student"));
    assert!(model("best/student") == model("short/student") && !case.path("best/student.best").exists());
    assert_eq!(run_record(&case.path("best"))["student"]["step"], step);
    // Another choice, once all steps are done; and none left.
    succeed(&mut rising(&case, "best", &["--final", "both", "--resume"]));
    assert!(model("best/student") == model("last/student") && model("best/student.best") == model("short/student"));
    let message = fail(&mut rising(&case, "best", &["--final", "both", "--resume"]), 2);
    assert!(message.contains("all 6 steps are done; raise --steps"), "{message}");
    // What the run wrote and somebody changed is not what is written.
    let file = case.path("last-of-both");
    crate::support::copy(&case.path("both"), &file);
    fs::remove_dir_all(file.join("student.best")).unwrap();
    let master = file.join(&checkpoint).join("master.safetensors");
    let mut bytes = fs::read(&master).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&master, bytes).unwrap();
    let message = fail(&mut rising(&case, "last-of-both", &["--final", "both", "--resume"]), 5);
    assert!(message.contains(&checkpoint) && message.contains("--final last"), "{message}");
}

#[test]
fn the_best_adapter_is_that_of_a_run_up_to_its_step() {
    let case = Case::new(17 * 9);
    let lora = ["--lora-rank", "3", "--steps", "3", "--final", "both"];
    succeed(&mut rising(&case, "both", &lora));
    let step = best(&case, "both").to_string();
    assert_ne!(step, "3");
    succeed(&mut rising(&case, "short", &["--lora-rank", "3", "--steps", &step]));
    let adapter = |path: &str| fs::read(case.path(path).join("adapter_model.safetensors")).unwrap();
    assert!(adapter("both/adapter.best") == adapter("short/adapter"));
    assert_eq!(run_record(&case.path("both"))["adapter.best"]["step"].to_string(), step);
}

#[test]
fn a_run_that_gains_nothing_ends_early_and_alike_over_resumes() {
    let case = Case::new(17 * 9);
    let early = ["--early-stop", "2", "--final", "both", "--schedule", "cosine", "--steps", "20", "--warmup", "8"];
    let output = rising(&case, "whole", &early).output().unwrap();
    let (stdout, stderr) = texts(&output);
    let step = best(&case, "whole");
    let (end, lines) = (step + 2, metrics_of(&case.path("whole")).len() as u64);
    assert!(output.status.success() && lines == end, "{stdout}\n{stderr}");
    assert!(stdout.contains(&format!("early:   after step {end} of 20: 2 losses on --eval-data in a row")), "{stdout}");
    assert!(stderr.contains("note: --schedule cosine was not finished"), "{stderr}");
    let record = run_record(&case.path("whole"));
    assert_eq!((&record["outcome"]["status"], &record["student"]["step"]), (&"done".into(), &end.into()));
    let checkpoints = [format!("checkpoint-{step}"), format!("checkpoint-{end}")];
    assert_eq!(names(&case, "whole")[..2], checkpoints);
    let message = fail(rising(&case, "whole", &early).arg("--resume"), 2);
    assert!(message.contains(&format!("{end} steps are done; --early-stop has ended the run")), "{message}");
    // The same, killed at every 67th change to the disk.
    for at in (1..).step_by(67) {
        let _ = fs::remove_dir_all(case.path("out"));
        let status = rising(&case, "out", &early).env("PRECAST_KILL_AT", at.to_string()).output().unwrap().status;
        if status.success() {
            break;
        }
        let start = match (names(&case, "out").is_empty(), case.path("out/run.json").exists()) {
            (false, _) => &["--resume"][..],
            (true, true) => &["--overwrite"],
            (true, false) => &[],
        };
        let (_, message) = texts(&rising(&case, "out", &early).args(start).output().unwrap());
        assert!(!message.contains("error: ") || message.contains("has ended the run"), "change {at}: {message}");
        let model = |out: &str, name: &str| fs::read(case.path(out).join(name).join("model.safetensors")).unwrap();
        assert!(["student", "student.best"].iter().all(|name| model("out", name) == model("whole", name)), "{at}");
        assert_eq!(names(&case, "out"), names(&case, "whole"), "change {at}");
        assert_eq!(run_record(&case.path("out"))["best"], record["best"], "change {at}");
    }
}

#[test]
fn ranks_choose_and_end_alike() {
    if skipped(!is_sim(), "it is of simulated GPUs") {
        return;
    }
    let case = Case::new(17 * 9);
    // In bf16 a rank of two has a part of the master weights.
    let early = ["--early-stop", "2", "--final", "both", "--replicas", "2", "--precision", "bf16"];
    succeed(&mut rising(&case, "one", &early));
    succeed(rising(&case, "two", &early).args(["--gpus", "2"]));
    // Rank 0 alone knows the evaluations before a resume.
    succeed(rising(&case, "part", &early).args(["--gpus", "2", "--steps", "3"]));
    succeed(rising(&case, "part", &early).args(["--gpus", "2", "--resume"]));
    assert_ne!(best(&case, "one"), 6);
    let model = |out: &str, name: &str| fs::read(case.path(out).join(name).join("model.safetensors")).unwrap();
    for out in ["two", "part"] {
        assert!(["student", "student.best"].iter().all(|name| model("one", name) == model(out, name)), "{out}");
        assert_eq!(names(&case, "one"), names(&case, out));
    }
}

#[test]
fn a_choice_without_losses_or_checkpoints_is_refused() {
    let case = Case::new(17 * 9);
    for option in ["--final=best", "--final=both", "--early-stop=3"] {
        let message = fail(&mut case.distill(&case.out(), &[option]), 2);
        assert!(message.contains("needs data to compute the loss of: give --eval-data"), "{option}: {message}");
    }
    for (options, expected) in [
        (&["--final", "both", "--checkpoint-every", "0"][..], "and --checkpoint-every 0 writes none"),
        (&["--early-stop", "1", "--checkpoint-every", "0"], "give --eval-every N"),
        (&["--early-stop", "0"], "without --early-stop all --steps are taken"),
        (&["--final", "first"], "last, best or both"),
    ] {
        let message = fail(&mut case.scored_run("out", options), 2);
        assert!(message.contains(expected), "{options:?}: {message}");
    }
    assert!(!case.out().exists());
}
