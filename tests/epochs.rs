//! `--epochs`: the length of a run as passes over its data.

use std::fs;
use std::path::Path;

use crate::support::{Case, fail, run_record, succeed, texts, tiny_config};

fn weights(out: &Path) -> Vec<u8> {
    fs::read(out.join("student/model.safetensors")).unwrap()
}

#[test]
fn epochs_are_the_steps_that_they_come_to() {
    // 9 sequences, 2 a step.
    let case = Case::new(17 * 9);
    let run = |out: &str, arguments: &[&str]| {
        case.distill(&case.path(out), &[&["--precision", "fp32", "--lr", "1e-2"], arguments].concat())
    };
    let said = succeed(&mut run("passes", &["--epochs", "1.5", "--schedule", "cosine"]));
    assert!(said.contains("steps    7 x 32 tokens = 1.56 passes over the data"), "{said}");
    let said = succeed(&mut run("steps", &["--steps", "7", "--schedule", "cosine"]));
    assert!(said.contains("steps    7 x 32 tokens = 1.56 passes over the data"), "{said}");
    assert!(weights(&case.path("passes")) == weights(&case.path("steps")));
    let config = run_record(&case.path("passes"))["config"].clone();
    assert_eq!([&config["steps"], &config["epochs"]], [&serde_json::json!(7), &serde_json::json!(1.5)]);
    assert!(run_record(&case.path("steps"))["config"].get("epochs").is_none());

    let message = fail(&mut run("both", &["--epochs", "1", "--steps", "4"]), 2);
    assert!(message.contains("--epochs and --steps each say how long the run is"), "{message}");
    let toml = case.path("run.toml");
    fs::write(&toml, "steps = 4\n").unwrap();
    let message = fail(&mut run("file", &["--epochs", "1", "--config", toml.to_str().unwrap()]), 2);
    assert!(message.contains("leave one of them out"), "{message}");
    let dry = succeed(&mut run("dry", &["--epochs", "3", "--dry-run"]));
    assert!(dry.contains("steps    14 x 32 tokens = 3.11 passes over the data"), "{dry}");
    assert!(!case.path("dry").exists() && !case.path("both").exists());
}

#[test]
fn a_run_of_epochs_continues_and_may_become_longer() {
    let case = Case::new(17 * 9);
    let run = |out: &str, arguments: &[&str]| {
        case.distill(&case.path(out), &[&["--precision", "fp32", "--lr", "1e-2"], arguments].concat())
    };
    succeed(&mut run("out", &["--epochs", "1"]));
    let message = fail(&mut run("out", &["--resume"]), 2);
    assert!(message.contains("all 5 steps are done"), "{message}");
    let said = succeed(&mut run("out", &["--epochs", "2", "--resume"]));
    assert!(said.contains("changed: epochs was 1.0, is 2.0") && said.contains("step 9/9"), "{said}");
    succeed(&mut run("whole", &["--steps", "9"]));
    assert!(weights(&case.path("out")) == weights(&case.path("whole")));
    // A file that was edited is not enough under cosine, a flag is.
    let toml = case.path("run.toml");
    let cosine = |epochs: &str, more: &[&str]| {
        fs::write(&toml, format!("epochs = {epochs}\nschedule = 'cosine'\n")).unwrap();
        run("cosine", &[&["--config", toml.to_str().unwrap()], more].concat())
    };
    succeed(&mut cosine("1", &[]));
    let message = fail(&mut cosine("2", &["--resume"]), 2);
    assert!(message.contains("steps was 5, is 9"), "{message}");
    succeed(&mut cosine("1", &["--resume", "--epochs", "2"]));
}

/// The end of data larger than what is read ahead is known after a pass, or where it is counted.
#[test]
fn passes_over_large_data_are_said_as_soon_as_they_are_known() {
    // What is trained matters little, and takes less time of a small model.
    let smaller = ["hidden_size", "intermediate_size"].map(|name| (name, 16.into()));
    let one = ["num_hidden_layers", "num_attention_heads", "num_key_value_heads"].map(|name| (name, 1.into()));
    let changes = [&smaller[..], &one, &[("max_position_embeddings", 128.into())]].concat();
    let case = Case::of([&tiny_config(&changes), &tiny_config(&changes)], 0);
    let data = case.path("large.jsonl");
    let row = format!("{{\"input_ids\": [{}]}}\n", ["1, 2"; 64].join(", "));
    // More than the 512 Ki tokens that are read ahead.
    fs::write(&data, row.repeat(4200)).unwrap();
    let run = |out: &str, arguments: &[&str]| {
        let mut command = crate::support::train(&case.student, &data, &case.path(out));
        command.args(["--precision", "fp32", "--seq-len", "127", "--checkpoint-every", "0"]).args(arguments);
        command
    };
    let said = succeed(&mut run("streamed", &["--batch-size", "1100", "--steps", "4"]));
    let before = "read while the run trains\nsteps    4 x 139700 tokens\n";
    let after = "4200 sequences, 537600 tokens, 0 masked; 0 rows truncated, 0 skipped\nsteps    4 x 139700 tokens = 1.05 passes";
    assert!(said.contains(before) && said.matches(after).count() == 1, "{said}");
    let counted = succeed(&mut run("counted", &["--batch-size", "2", "--epochs", "0.0008", "--schedule", "cosine"]));
    assert!(counted.contains("steps    2 x 254 tokens = 0.0010 passes over the data"), "{counted}");
}

#[test]
fn too_many_passes_and_too_few_sequences_are_noted() {
    let case = Case::new(17);
    let output = case.distill(&case.out(), &["--precision", "fp32", "--steps", "11"]).output().unwrap();
    let (_, stderr) = texts(&output);
    assert!(stderr.contains("note: the run takes the data 22 times, and above 20"), "{stderr}");
    assert!(stderr.contains("note: a step takes 2 sequences and the data have 1"), "{stderr}");
}
