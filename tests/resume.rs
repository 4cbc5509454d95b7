//! `--resume` continues the same run, from a checkpoint that is what was written, or says why not.

use std::fs;
use std::path::Path;
use std::process::Command;

use precast_fatbins::Digest;

use crate::support::{Case, copy, fail, is_note, names_in, random_model, run_record, succeed, tiny_config, token_file};

impl Case {
    /// A run of two steps with a checkpoint after each, changed by later arguments.
    fn resumable_run(&self, arguments: &[&str]) -> Command {
        let mut command =
            self.distill(&self.out(), &["--precision", "fp32", "--lr", "1e-2", "--checkpoint-every", "1"]);
        command.args(arguments);
        command
    }
}

fn weights(out: &Path) -> Vec<u8> {
    fs::read(out.join("student/model.safetensors")).unwrap()
}

/// Lines of a message, notes apart.
fn told(message: &str) -> usize {
    message.lines().filter(|line| !is_note(line)).count()
}

#[test]
fn every_difference_from_the_run_is_listed() {
    let case = Case::new(17 * 9);
    succeed(&mut case.resumable_run(&["--steps", "2", "--seed", "5"]));
    let before = fs::read(case.path("out/run.json")).unwrap();
    let changes = [
        ("--lr", "2e-2", "lr was 0.01, is 0.02"),
        ("--alpha", "0.25", "alpha was 0.5, is 0.25"),
        ("--temperature", "1", "temperature was 2, is 1"),
        ("--weight-decay", "0.5", "weight_decay was 0.01, is 0.5"),
        ("--clip", "2", "clip was 1, is 2"),
        ("--warmup", "1", "warmup was 0, is 1"),
        ("--schedule", "cosine", "schedule was constant, is cosine"),
        ("--precision", "bf16", "precision was fp32, is bf16"),
        ("--batch-size", "1", "batch_size was 2, is 1"),
        ("--seq-len", "8", "seq_len was 16, is 8"),
        ("--grad-accum", "2", "grad_accum was 1, is 2"),
        ("--shuffle", "true", "shuffle was false, is true"),
        ("--seed", "6", "seed was 5, is 6"),
    ];
    let resume = ["--steps", "4", "--seed", "5", "--resume"];
    let mut all = resume.to_vec();
    for (name, value, _) in changes {
        let position = all.iter().position(|argument| *argument == name);
        match position {
            Some(position) => all[position + 1] = value,
            None => all.extend([name, value]),
        }
    }
    let message = fail(&mut case.resumable_run(&all), 2);
    for (_, _, difference) in changes {
        assert!(message.contains(difference), "{difference}: {message}");
    }
    // Models, what they are, and data.
    let mut other = case.resumable_run(&resume);
    let longer = token_file(case.dir.path(), "longer.bin", 17 * 10, 96);
    let teacher = random_model(case.dir.path(), "other", 3, &tiny_config(&[]));
    let student = random_model(case.dir.path(), "epsilon", 2, &tiny_config(&[("rms_norm_eps", 1e-3.into())]));
    other.arg("--teacher").arg(&teacher).arg("--student").arg(&student).arg("--data").arg(&longer);
    let message = fail(&mut other, 2);
    for name in ["teacher was", "student config was", "data was"] {
        assert!(message.contains(name), "{name}: {message}");
    }
    assert!(!message.contains("student was"), "{message}");
    assert_eq!(fs::read(case.path("out/run.json")).unwrap(), before, "a refused resume writes nothing");
    // Only the weights.
    let message = fail(
        case.resumable_run(&resume).arg("--student").arg(random_model(
            case.dir.path(),
            "weights",
            4,
            &tiny_config(&[]),
        )),
        2,
    );
    assert!(message.contains("student was") && told(&message) == 3, "{message}");
    succeed(&mut case.resumable_run(&resume));
}

#[test]
fn a_tokenizer_is_part_of_a_run_on_text() {
    let case = Case::new(17 * 9);
    let tokenizer = |normalizer: &str| {
        format!(
            r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":{normalizer},
            "pre_tokenizer":{{"type":"Whitespace"}},"post_processor":null,"decoder":null,
            "model":{{"type":"WordLevel","vocab":{{"a":0,"b":1,"c":2,"[UNK]":3}},"unk_token":"[UNK]"}}}}"#
        )
    };
    let text = case.path("text.txt");
    fs::write(&text, "a b c c b a ".repeat(40)).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = case.resumable_run(arguments);
        command.arg("--data").arg(&text);
        command
    };
    fs::write(case.student.join("tokenizer.json"), tokenizer("null")).unwrap();
    succeed(&mut run(&["--steps", "1"]));
    fs::write(case.student.join("tokenizer.json"), tokenizer(r#"{"type":"Lowercase"}"#)).unwrap();
    let message = fail(&mut run(&["--steps", "2", "--resume"]), 2);
    assert!(message.contains("tokenizer was") && told(&message) == 3, "{message}");
    fs::write(case.student.join("tokenizer.json"), tokenizer("null")).unwrap();
    succeed(&mut run(&["--steps", "2", "--resume"]));
}

#[test]
fn what_may_change_is_said_and_kept_in_the_history() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    succeed(&mut case.resumable_run(&["--steps", "2"]));
    let more = ["--steps", "3", "--resume", "--recompute", "--checkpoint-every", "2"];
    let printed = succeed(&mut case.resumable_run(&more));
    assert!(printed.contains("changed: steps was 2, is 3"), "{printed}");
    let record = run_record(&out);
    let parts = record["parts"].as_array().unwrap();
    let steps =
        |part: &serde_json::Value| [part["started_step"].as_u64().unwrap(), part["ended_step"].as_u64().unwrap()];
    assert_eq!(parts.iter().map(steps).collect::<Vec<_>>(), [[0, 2], [2, 3]]);
    for part in parts {
        assert!(part["device"]["name"].is_string() && part["started_unix_s"].as_u64() > Some(1_700_000_000), "{part}");
        assert!([&part["binary"], &part["bundle"]].iter().all(|digest| digest.as_str().unwrap().len() == 64), "{part}");
    }
    assert_eq!(parts[0]["changed"], serde_json::json!([]));
    let changed = ["checkpoint_every was 1, is 2", "recompute was \"none\", is \"norms\"", "steps was 2, is 3"];
    assert_eq!(parts[1]["changed"], serde_json::json!(changed));
    // The number of steps is the run's where none is given.
    let message = fail(&mut case.resumable_run(&["--resume"]), 2);
    assert!(message.contains("all 3 steps are done"), "{message}");
}

#[test]
fn a_cosine_moves_only_where_it_is_asked_to() {
    let case = Case::new(17 * 9);
    let cosine = ["--schedule", "cosine", "--warmup", "1"];
    let run = |more: &[&str]| case.resumable_run(&[&cosine, more].concat());
    succeed(&mut run(&["--steps", "2"]));
    let toml = case.path("run.toml");
    fs::write(&toml, "steps = 4\n").unwrap();
    let message = fail(&mut run(&["--config", toml.to_str().unwrap(), "--resume"]), 2);
    assert!(message.contains("steps was 2, is 4, which under cosine takes --steps 4"), "{message}");
    let printed = succeed(&mut run(&["--steps", "4", "--resume"]));
    assert!(printed.contains("changed: steps was 2, is 4"), "{printed}");
}

#[test]
fn one_flipped_bit_of_a_checkpoint_is_found() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    succeed(&mut case.resumable_run(&["--steps", "2", "--keep", "2"]));
    assert_eq!(
        names_in(&out),
        ["checkpoint-1", "checkpoint-2", "metrics.jsonl", "report.html", "run.json", "run.log", "student"]
    );
    let checkpoint = out.join("checkpoint-2");
    let files = ["m.safetensors", "master.safetensors", "precast.sha256", "state.json", "v.safetensors"];
    assert_eq!(names_in(&checkpoint), files);
    for name in files {
        let path = checkpoint.join(name);
        let whole = fs::read(&path).unwrap();
        let last = 8 * whole.len() - 1;
        for bit in [0, 8 * 9 + 5, last / 3, last / 2, last] {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bytes).unwrap();
            let message = fail(&mut case.resumable_run(&["--steps", "3", "--resume"]), 5);
            let named = message.contains("checkpoint-2 is damaged") && message.contains("continue from checkpoint-1");
            assert!(named, "{name} bit {bit}: {message}");
        }
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        fail(&mut case.resumable_run(&["--steps", "3", "--resume"]), 5);
        fs::remove_file(&path).unwrap();
        fail(&mut case.resumable_run(&["--steps", "3", "--resume"]), 5);
        fs::write(&path, whole).unwrap();
    }
    fs::write(checkpoint.join("extra"), "").unwrap();
    assert!(
        fail(&mut case.resumable_run(&["--steps", "3", "--resume"]), 5).contains("checkpoint-2/extra is not listed")
    );
    // What the message says: without the damaged one the run continues from the one before.
    fs::remove_dir_all(&checkpoint).unwrap();
    succeed(&mut case.resumable_run(&["--steps", "3", "--resume"]));
    assert_eq!(run_record(&out)["parts"][1]["started_step"], 1);
}

#[test]
fn a_run_whose_only_checkpoint_is_damaged_starts_again_as_the_message_says() {
    let case = Case::new(17 * 9);
    let checkpoint = case.path("out").join("checkpoint-2");
    succeed(&mut case.resumable_run(&["--steps", "2", "--keep", "1"]));
    fs::write(checkpoint.join("m.safetensors"), "damaged").unwrap();
    let message = fail(&mut case.resumable_run(&["--steps", "3", "--resume"]), 5);
    assert!(message.contains("remove this one and start the run again with --overwrite"), "{message}");
    // Until it is removed, it is what somebody changed.
    assert!(
        fail(&mut case.resumable_run(&["--steps", "3", "--overwrite"]), 2)
            .contains("m.safetensors was changed since it was written")
    );
    fs::remove_dir_all(&checkpoint).unwrap();
    succeed(&mut case.resumable_run(&["--steps", "3", "--overwrite"]));
}

#[test]
fn lines_of_metrics_keep_their_bytes_and_wrong_ones_are_named() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    let path = out.join("metrics.jsonl");
    succeed(&mut case.resumable_run(&["--steps", "4", "--checkpoint-every", "3"]));
    // As a kill in the middle of a line of the fifth step leaves it.
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let spoiled: [(&str, Vec<&str>, &str); 5] = [
        ("garbled", vec![lines[0], "{\"step\": 2}\n", lines[2], lines[3]], "metrics.jsonl:2: "),
        ("missing", vec![lines[0], lines[2], lines[3]], "metrics.jsonl:2: the line of step 3"),
        ("duplicated", vec![lines[0], lines[0], lines[1], lines[2], lines[3]], "metrics.jsonl:2: the line of step 1"),
        ("out of order", vec![lines[0], lines[2], lines[1], lines[3]], "metrics.jsonl:2: the line of step 3"),
        ("cut", vec![lines[0], lines[1]], "metrics.jsonl:3: the line is missing"),
    ];
    for (what, lines, expected) in spoiled {
        fs::write(&path, lines.concat()).unwrap();
        let message = fail(&mut case.resumable_run(&["--steps", "5", "--resume"]), 5);
        assert!(message.contains(expected), "{what}: {message}");
        if what != "cut" {
            let report = fail(crate::support::precast().arg("report").arg(&out), 5);
            assert!(report.contains(expected), "{what}: {report}");
        }
    }
    // Another digit of a loss.
    let digit = whole.find("\"loss\":").unwrap() + 10;
    let mut changed = whole.clone().into_bytes();
    changed[digit] = if changed[digit] == b'1' { b'2' } else { b'1' };
    fs::write(&path, changed).unwrap();
    let message = fail(&mut case.resumable_run(&["--steps", "5", "--resume"]), 5);
    assert!(message.contains("was changed after it was written"), "{message}");
    fs::write(&path, format!("{whole}{}", &lines[3][..10])).unwrap();
    succeed(&mut case.resumable_run(&["--steps", "5", "--resume"]));
    let resumed = fs::read_to_string(&path).unwrap();
    assert_eq!(&resumed[..whole.len()], whole);
    assert_eq!(resumed.lines().count(), 5);
}

#[test]
fn the_tokens_of_the_steps_so_far_are_proven() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    succeed(&mut case.resumable_run(&["--steps", "2"]));
    let checkpoint = out.join("checkpoint-2");
    let state = fs::read_to_string(checkpoint.join("state.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&state).unwrap();
    // Each step's tokens hashed with what came before: two rows of 17 ids a step, in order.
    let data = fs::read(&case.data).unwrap();
    let rows: Vec<&[u8]> = data.chunks(4 * 17).collect();
    let after = |before: Digest, rows: &[&[u8]]| {
        Digest::of_parts("precast.tokens", std::iter::once(&before.0[..]).chain(rows.iter().copied()))
    };
    let seen = after(after(Digest::of(b""), &rows[..2]), &rows[2..4]);
    assert_eq!(json["tokens_sha256"], seen.to_string());
    // As if an earlier version had shuffled another way.
    let other = state.replace(&seen.to_string(), &Digest::of(b"other").to_string());
    fs::write(checkpoint.join("state.json"), &other).unwrap();
    let listing = fs::read_to_string(checkpoint.join("precast.sha256")).unwrap();
    let [was, is] = [&state, &other].map(|text| Digest::of(text.as_bytes()).to_string());
    fs::write(checkpoint.join("precast.sha256"), listing.replace(&was, &is)).unwrap();
    let message = fail(&mut case.resumable_run(&["--steps", "3", "--resume"]), 5);
    assert!(message.contains("the tokens of its 2 steps are not those"), "{message}");
}

#[test]
fn a_finished_run_without_its_student_exports_it() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    succeed(&mut case.resumable_run(&["--steps", "2"]));
    let (whole, metrics) = (weights(&out), fs::read(out.join("metrics.jsonl")).unwrap());
    fs::remove_dir_all(out.join("student")).unwrap();
    succeed(&mut case.resumable_run(&["--steps", "2", "--resume"]));
    assert!(weights(&out) == whole && fs::read(out.join("metrics.jsonl")).unwrap() == metrics);
    // The run was extended and then killed before its export: `student/` still holds the weights of the shorter run.
    let saved = case.path("saved");
    copy(&out.join("student"), &saved);
    let record = fs::read(out.join("run.json")).unwrap();
    succeed(&mut case.resumable_run(&["--steps", "3", "--resume"]));
    let longer = weights(&out);
    assert_ne!(longer, whole);
    fs::remove_dir_all(out.join("student")).unwrap();
    copy(&saved, &out.join("student"));
    let now = fs::read_to_string(out.join("run.json")).unwrap();
    let (was, mut is): (serde_json::Value, serde_json::Value) =
        (serde_json::from_slice(&record).unwrap(), serde_json::from_str(&now).unwrap());
    is["student"] = was["student"].clone();
    for (name, digest) in was["files"].as_object().unwrap().iter().filter(|(name, _)| name.starts_with("student/")) {
        is["files"][name] = digest.clone();
    }
    fs::write(out.join("run.json"), is.to_string()).unwrap();
    succeed(&mut case.resumable_run(&["--steps", "3", "--resume"]));
    assert!(weights(&out) == longer);
    // A student that the run did not write is not replaced.
    fs::write(out.join("student/config.json"), "{}").unwrap();
    let message = fail(&mut case.resumable_run(&["--steps", "4", "--resume"]), 2);
    assert!(message.contains("student/config.json was changed since it was written"), "{message}");
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    succeed(&mut case.resumable_run(&["--steps", "2"]));
    for name in ["metrics.jsonl", "checkpoint-2/precast.sha256", "checkpoint-2/state.json", "student/config.json"] {
        let whole = fs::read(out.join(name)).unwrap();
        fs::remove_file(out.join(name)).unwrap();
        assert!(Command::new("mkfifo").arg(out.join(name)).status().unwrap().success());
        for more in ["--resume", "--overwrite"] {
            let output = case.resumable_run(&["--steps", "4", more]).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && message.contains(name), "{name} {more}: {message}");
        }
        fs::remove_file(out.join(name)).unwrap();
        fs::write(out.join(name), whole).unwrap();
    }
    succeed(&mut case.resumable_run(&["--steps", "4", "--resume"]));
}

#[test]
fn a_directory_named_almost_like_a_checkpoint_is_none() {
    let case = Case::new(17 * 9);
    succeed(&mut case.resumable_run(&["--steps", "2"]));
    for name in ["checkpoint-0009", "checkpoint-+9"] {
        fs::create_dir(case.path("out").join(name)).unwrap();
    }
    succeed(&mut case.resumable_run(&["--steps", "3", "--resume"]));
    assert!(case.path("out/checkpoint-3").exists() && case.path("out/checkpoint-0009").exists());
}
