//! Held-out losses inside a run, the checkpoint that is best by them, and what people look at.

use precast::run::sample::SampleRecord;
use precast::run::step::HeldOutRecord;

use crate::support::Texts;
use crate::support::prelude::*;

/// Two models, tokens, and three sequences that nobody trains on.
fn case() -> Case {
    let case = Case::new(17 * 9);
    token_file(case.dir.path(), "held-out.bin", 17 * 3, 96);
    case
}

fn scored_run(case: &Case, out: &str, arguments: impl Texts) -> Command {
    let held_out = "--precision fp32 --lr 1e-2 --eval-data held-out.bin";
    case.distill(out, [&[held_out], &arguments.each()[..]].concat())
}

fn scores(case: &Case, out: &str) -> Vec<(u64, HeldOutRecord)> {
    case.metrics(out).into_iter().filter_map(|record| Some((record.step, record.held_out?))).collect()
}

/// The step of the least loss.
fn best(case: &Case, out: &str) -> (u64, HeldOutRecord) {
    let least =
        |a: &(u64, HeldOutRecord), b: &(u64, HeldOutRecord)| a.1.eval_loss.unwrap().total_cmp(&b.1.eval_loss.unwrap());
    scores(case, out).into_iter().min_by(least).unwrap()
}

/// Scoring launches what a step launches, and changes no bit of the steps after it; what it says is what `eval` says.
#[test]
fn held_out_losses_are_those_of_eval_and_change_nothing() {
    let case = case();
    scored_run(&case, "scored", "--steps 4 --checkpoint-every 0 --eval-every 2").succeeds();
    case.distill("plain", "--precision fp32 --lr 1e-2 --steps 4 --checkpoint-every 0").succeeds();
    assert!(case.weights("scored") == case.weights("plain"));
    let scores = scores(&case, "scored");
    assert_eq!(scores.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [2, 4]);
    let last = &scores[1].1;
    assert_eq!(last.eval_tokens, 3 * 16);
    let loss = 0.5 * 4.0 * last.eval_kd_loss.unwrap() + 0.5 * last.eval_ce_loss.unwrap();
    assert!((last.eval_loss.unwrap() / loss - 1.0).abs() < 1e-6);
    let eval = "eval --json --untrained --seq-len 16 --data held-out.bin --model scored/student";
    let nll = case.run(eval).json()["nll"].as_f64().unwrap();
    assert!((last.eval_ce_loss.unwrap() / nll - 1.0).abs() < 1e-5, "{last:?} {nll}");
    let report = case.text("scored/report.html");
    assert!(report.contains("eval_loss, held out") && report.contains("eval_kd_loss, held out"));
}

/// The report ends with what the student that is written goes on with.
#[test]
fn samples_are_those_of_generate() {
    let case = case();
    scored_run(&case, "out", "--steps 2 --checkpoint-every 0").succeeds();
    let samples: Vec<SampleRecord> = list(&case.record("out")["samples"]);
    // Sequences of 16 tokens, whose first quarter is the prompt: 17 of the file.
    let held_out: Vec<u32> = bytemuck::pod_collect_to_vec(&case.read("held-out.bin"));
    let text = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let rows = held_out.chunks_exact(17).map(|chunk| format!("{{\"input_ids\": {:?}}}\n", &chunk[..4]));
    case.write("prompts.jsonl", rows.collect::<String>());
    let generate = "generate --sampling-temperature 0 --seq-len 16 --data prompts.jsonl --model out/student";
    case.run([generate, "--out completions.jsonl"]).succeeds();
    let completions = case.text("completions.jsonl");
    assert_eq!((samples.len(), completions.lines().count()), (3, 3));
    for ((sample, chunk), line) in samples.iter().zip(held_out.chunks_exact(17)).zip(completions.lines()) {
        let line: Value = serde_json::from_str(line).unwrap();
        let ids: Vec<u32> = list(&line["input_ids"]);
        assert_eq!((sample.step, &sample.prompt, &sample.reference), (2, &text(&chunk[..4]), &text(&chunk[4..])));
        assert_eq!(sample.completion, text(&ids[4..]));
    }
    let report = case.text("out/report.html");
    assert!(report.contains("Completions of held-out prompts after step 2") && report.contains(&samples[0].completion));
}

/// The first steps learn and later ones, at a rate that is far too high, unlearn.
const RISES: &str = "--warmup 8 --lr 2 --clip 0 --allow-divergence";

#[test]
fn the_best_checkpoint_stays_beside_the_latest() {
    let case = case();
    let run = |arguments: &str| scored_run(&case, "out", ["--checkpoint-every 1", RISES, arguments]);
    run("--steps 6").succeeds();
    let (step, score) = best(&case, "out");
    assert!(step != 6 && scores(&case, "out").len() == 6);
    let checkpoints = || {
        let mut names = case.names("out");
        names.retain(|name| name.starts_with("checkpoint-"));
        names
    };
    let kept = format!("checkpoint-{step}");
    assert_eq!(checkpoints(), [&kept, "checkpoint-6"]);
    let recorded = &case.record("out")["best"];
    assert_eq!((&recorded["step"], recorded["eval_loss"].as_f64()), (&step.into(), score.eval_loss));
    // A run that continues keeps it, and the score that made it the best.
    run("--steps 7 --resume").succeeds();
    assert_eq!(checkpoints(), [&kept, "checkpoint-7"]);
    // By other data it starts again: the score that made that one the best says nothing of these.
    token_file(case.dir.path(), "held-out.bin", 17 * 2, 96);
    let [_, stderr] = run("--steps 8 --resume").says();
    let change = "--eval-data has other tokens than before: the best checkpoint is that of the steps after 7";
    assert!(stderr.contains(&format!("note: {change}\n")), "{stderr}");
    assert_eq!(checkpoints(), ["checkpoint-8"]);
    let record = case.record("out");
    assert_eq!((&record["best"]["step"], &record["held_out"]["after_step"]), (&8.into(), &7.into()));
    let changed = list::<String>(&record["parts"][2]["changed"]);
    assert!(changed.iter().any(|said| said == change), "{changed:?}");
}

#[test]
fn output_that_nobody_watches_has_a_line_every_so_many_steps() {
    let case = Case::new(17 * 9);
    let said = case.distill("out", "--steps 7 --log-every 3").succeeds();
    let steps: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("step ")?.split('/').next()).collect();
    assert_eq!(steps, ["1", "3", "6", "7"]);
    assert_eq!(case.metrics("out").len(), 7);
}

/// The event file is the run's: listed, replaced while the run goes on, and gone with a run that is replaced.
#[test]
fn an_event_file_is_written_whole_and_owned() {
    let case = case();
    let name = "events.out.tfevents.precast";
    let run = |more: &str| {
        scored_run(&case, "out", ["--checkpoint-every 1", more]).succeeds();
        fs::read(case.path("out").join(name)).ok()
    };
    let first = run("--tensorboard --steps 2").unwrap();
    let second = run("--tensorboard --steps 3 --resume").unwrap();
    assert!(second.starts_with(&first) && second.len() > first.len());
    assert!(case.record("out")["files"].get(name).is_some());
    assert_eq!(run("--steps 1 --overwrite"), None);
}

/// A run whose best of six steps is not the last.
fn rising(case: &Case, out: &str, more: impl Texts) -> Command {
    let steps = "--steps 6 --checkpoint-every 6 --eval-every 1";
    scored_run(case, out, [&[steps, RISES], &more.each()[..]].concat())
}

fn names(case: &Case, out: &str) -> Vec<String> {
    let mut names = case.names(out);
    names.retain(|name| ["checkpoint", "student", "adapter"].iter().any(|start| name.starts_with(start)));
    names
}

fn model(case: &Case, path: &str) -> Vec<u8> {
    case.read(format!("{path}/model.safetensors"))
}

/// The best step's weights are those that a run of as many steps leaves.
#[test]
fn the_best_student_is_that_of_a_run_up_to_its_step() {
    let case = case();
    let model = |path: &str| model(&case, path);
    let printed = rising(&case, "both", "--final both").succeeds();
    let (step, _) = best(&case, "both");
    assert!((2..6).contains(&step), "{step}");
    let lines = ["student (step 6)\n".to_owned(), format!("student.best (step {step})\n")];
    assert!(lines.iter().all(|line| printed.contains(line.as_str())), "{printed}");
    let checkpoint = format!("checkpoint-{step}");
    assert_eq!(names(&case, "both"), [&checkpoint, "checkpoint-6", "student", "student.best"]);
    let record = case.record("both");
    assert_eq!((&record["student"]["step"], &record["student.best"]["step"]), (&6.into(), &step.into()));
    let report = case.text("both/report.html");
    assert!(report.contains(&format!("student of step 6, student.best of step {step}<")));
    rising(&case, "short", ["--steps", &step.to_string()]).succeeds();
    rising(&case, "last", "").succeeds();
    rising(&case, "best", "--final best").succeeds();
    assert!(model("both/student.best") == model("short/student") && model("both/student") == model("last/student"));
    assert!(model("best/student") == model("short/student") && !case.has("best/student.best"));
    assert_eq!(case.record("best")["student"]["step"], step);
    // Another choice, once all steps are done; and none left.
    rising(&case, "best", "--final both --resume").succeeds();
    assert!(model("best/student") == model("last/student") && model("best/student.best") == model("short/student"));
    rising(&case, "best", "--final both --resume").fails(2, "all 6 steps are done; raise --steps");
    // What the run wrote and somebody changed is not what is written.
    fs::remove_dir_all(case.path("both/student.best")).unwrap();
    let master = format!("both/{checkpoint}/master.safetensors");
    let mut bytes = case.read(&master);
    *bytes.last_mut().unwrap() ^= 1;
    case.write(&master, bytes);
    rising(&case, "both", "--final both --resume").fails(5, [&*checkpoint, "--final last"]);
}

#[test]
fn the_best_adapter_is_that_of_a_run_up_to_its_step() {
    let case = case();
    rising(&case, "both", "--lora-rank 3 --steps 3 --final both").succeeds();
    let step = best(&case, "both").0.to_string();
    assert_ne!(step, "3");
    rising(&case, "short", ["--lora-rank 3 --steps", &step]).succeeds();
    let adapter = |path: &str| case.read(format!("{path}/adapter_model.safetensors"));
    assert!(adapter("both/adapter.best") == adapter("short/adapter"));
    assert_eq!(case.record("both")["adapter.best"]["step"].to_string(), step);
}

#[test]
fn a_run_that_gains_nothing_ends_early_and_alike_over_resumes() {
    let case = case();
    let early = |out: &str, more: &str| {
        rising(&case, out, ["--early-stop 2 --final both --schedule cosine --steps 20 --warmup 8", more])
    };
    let [stdout, stderr] = early("whole", "").says();
    let step = best(&case, "whole").0;
    let end = step + 2;
    assert_eq!(case.metrics("whole").len() as u64, end, "{stdout}\n{stderr}");
    assert!(stdout.contains(&format!("early:   after step {end} of 20: 2 losses on --eval-data in a row")), "{stdout}");
    assert!(stderr.contains("note: --schedule cosine was not finished"), "{stderr}");
    let record = case.record("whole");
    assert_eq!((&record["outcome"]["status"], &record["student"]["step"]), (&"done".into(), &end.into()));
    assert_eq!(names(&case, "whole")[..2], [step, end].map(|step| format!("checkpoint-{step}")));
    early("whole", "--resume").fails(2, format!("{end} steps are done; --early-stop has ended the run"));
    // The same, killed at every 67th change to the disk.
    for at in (1..).step_by(67) {
        let _ = fs::remove_dir_all(case.out());
        if !is_killed_at(at, &mut early("out", "")) {
            break;
        }
        goes_on(&mut early("out", continuation(&case.out())), &format!("change {at}"));
        assert!(same_models(&case, "out", "whole"), "change {at}");
        assert_eq!(case.record("out")["best"], record["best"], "change {at}");
    }
}

/// True if two runs have the same checkpoints and models, of the last step and of the best.
fn same_models(case: &Case, one: &str, other: &str) -> bool {
    let is_same = |name| model(case, &format!("{one}/{name}")) == model(case, &format!("{other}/{name}"));
    names(case, one) == names(case, other) && ["student", "student.best"].into_iter().all(is_same)
}

#[test]
fn ranks_choose_and_end_alike() {
    skip_if!(is_on_gpu());
    let case = case();
    // In bf16 a rank of two has a part of the master weights.
    let early = |out: &str, more: &str| {
        rising(&case, out, ["--early-stop 2 --final both --replicas 2 --precision bf16", more]).succeeds();
    };
    early("one", "");
    early("two", "--gpus 2");
    // Rank 0 alone knows the evaluations before a resume.
    early("part", "--gpus 2 --steps 3");
    early("part", "--gpus 2 --resume");
    assert_ne!(best(&case, "one").0, 6);
    assert!(["two", "part"].iter().all(|out| same_models(&case, "one", out)));
}
