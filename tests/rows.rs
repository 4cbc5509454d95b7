//! Rows of token ids with labels: what counts, over which mean, and what is wrong with a row.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::inputs::data::{Chunk, MicroBatch};
use precast_kernels::abi::MASKED_TOKEN;

use crate::support::{
    bundle, config_alone, device, distill, fail, floats, metrics_of, precast, random_model, run_record, session,
    succeed, tiny_config, train,
};

struct Case {
    dir: tempfile::TempDir,
    teacher: PathBuf,
    student: PathBuf,
}

fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let [teacher, student] =
        [("teacher", 1), ("student", 2)].map(|(name, seed)| random_model(dir.path(), name, seed, &tiny_config(&[])));
    Case { dir, teacher, student }
}

/// A row as a line: labels of -100 where `counts` says no.
fn line(ids: &[u32], counts: impl Fn(usize) -> bool) -> String {
    let labels: Vec<i64> =
        ids.iter().enumerate().map(|(at, id)| if counts(at) { i64::from(*id) } else { -100 }).collect();
    format!("{{\"input_ids\": {ids:?}, \"labels\": {labels:?}}}\n")
}

/// Rows of unequal lengths, of which unequal parts count.
fn rows() -> String {
    (0..11u32).fold(String::new(), |mut text, row| {
        let ids: Vec<u32> = (0..4 + 2 * row).map(|at| (7 * row + 5 * at) % 96).collect();
        let first = ids.len() / 3;
        write!(text, "{}", line(&ids, |at| at >= first)).unwrap();
        text
    })
}

impl Case {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn train(&self, data: &Path, out: &str, arguments: &[&str]) -> Command {
        let mut command = train(&self.student, data, &self.path(out));
        command.args(["--seq-len", "16", "--precision", "fp32", "--lr", "1e-2"]).args(arguments);
        command
    }
}

/// Losses, tokens and weights of a run, to the bit.
fn results(out: &Path) -> (Vec<[u64; 4]>, Vec<u8>) {
    let bits = |value: Option<f64>| value.unwrap().to_bits();
    let records = metrics_of(out);
    let steps = records.iter().map(|r| [bits(r.loss), bits(r.kd_loss), bits(r.ce_loss), r.tokens]).collect();
    (steps, fs::read(out.join("student/model.safetensors")).unwrap())
}

#[test]
fn a_masked_run_continues_to_the_same_bits() {
    let case = case();
    let data = case.file("rows.jsonl", &rows());
    for taught in [false, true] {
        let run = |out: &str, more: &[&str]| {
            let mut command = match taught {
                true => distill(&case.teacher, &case.student, &data, &case.path(out)),
                false => train(&case.student, &data, &case.path(out)),
            };
            command.args(["--seq-len", "16", "--batch-size", "2", "--grad-accum", "2", "--lr", "1e-2"]);
            succeed(command.args(["--shuffle", "true", "--seed", "3"]).args(more));
        };
        let (whole, parts) = (format!("whole-{taught}"), format!("parts-{taught}"));
        run(&whole, &["--steps", "7"]);
        run(&parts, &["--steps", "4"]);
        run(&parts, &["--steps", "7", "--resume"]);
        let (whole, parts) = (results(&case.path(&whole)), results(&case.path(&parts)));
        assert!(whole == parts, "taught: {taught}");
        // Counts differ from step to step, and each is that of its own tokens.
        let tokens: std::collections::BTreeSet<u64> = whole.0.iter().map(|step| step[3]).collect();
        assert!(tokens.len() > 2, "{tokens:?}");
    }
}

#[test]
fn what_counts_is_part_of_what_a_run_is() {
    let case = case();
    let data = case.file("rows.jsonl", &rows());
    succeed(&mut case.train(&data, "out", &["--steps", "1", "--batch-size", "2"]));
    let resume = ["--steps", "2", "--batch-size", "2", "--resume"];
    case.file("rows.jsonl", &rows().replacen("-100, ", "0, ", 1));
    let message = fail(&mut case.train(&data, "out", &resume), 2);
    assert!(message.contains("data was"), "{message}");
    case.file("rows.jsonl", &rows());
    succeed(&mut case.train(&data, "out", &resume));
}

/// The mean is over all tokens of the step that count: a step of two micro-batches is one of a large one.
#[test]
fn a_step_has_one_mean_over_the_tokens_that_count() {
    let case = case();
    let long: Vec<u32> = (1..18).collect();
    let few = line(&[3, 1, 4, 1, 5], |at| at == 4);
    let data = case.file("rows.jsonl", &(line(&long, |_| true) + &few));
    let step = |out: &str, arguments: &[&str]| {
        succeed(&mut case.train(&data, out, &[&["--steps", "1"], arguments].concat()));
        metrics_of(&case.path(out)).remove(0)
    };
    let parts = step("parts", &["--batch-size", "1", "--grad-accum", "2"]);
    let whole = step("whole", &["--batch-size", "2"]);
    assert_eq!((parts.tokens, whole.tokens), (17, 17));
    let [first, second] = [line(&long, |_| true), few].map(|row| {
        let data = case.file("one.jsonl", &row);
        let out = format!("of-{}", row.len());
        succeed(&mut case.train(&data, &out, &["--steps", "1", "--batch-size", "1"]));
        let record = metrics_of(&case.path(&out)).remove(0);
        (record.loss.unwrap(), record.tokens as f64)
    });
    let mean = (first.0 * first.1 + second.0 * second.1) / 17.0;
    let mean_of_means = f64::midpoint(first.0, second.0);
    for loss in [parts.loss.unwrap(), whole.loss.unwrap()] {
        assert!((loss / mean - 1.0).abs() < 1e-6, "{loss} is not {mean}");
    }
    assert!((mean_of_means / mean - 1.0).abs() > 1e-3, "the rows cannot tell the two means apart");
}

/// Attention is causal: whatever stands behind the last token that counts changes neither its loss nor any gradient.
#[test]
fn padding_changes_nothing_that_counts() {
    let case = case();
    let config = config_alone(&case.student, |options| options.shape.batch_size = 2);
    let short = [Chunk::plain([5, 9, 2, 11]), Chunk::plain((1..18).collect::<Vec<u32>>())];
    let padded = Chunk {
        ids: vec![5, 9, 2, 11, 77, 3, 60, 95, 4],
        labels: Some([vec![5, 9, 2, 11], vec![MASKED_TOKEN; 5]].concat()),
    };
    let run = |chunks: [&Chunk; 2]| {
        let batch = MicroBatch::of(chunks, (2, 16));
        assert_eq!(batch.counted, 3 + 16);
        let mut session = session(&config);
        session.micro(&batch, 1.0 / 19.0, 0).unwrap();
        let parameters = session.plan.student.weights.parameters.list.clone();
        let of_norms = parameters.into_iter().filter(|parameter| parameter.shape.len() == 1);
        let gradients: Vec<Vec<f32>> =
            of_norms.map(|parameter| floats(&session.read(session.trained_of(&parameter).grad).unwrap())).collect();
        let ticket = session.update(0, 1e-3).unwrap();
        let (metrics, _) = session.metrics(ticket).unwrap();
        (metrics.ce_loss.to_bits(), gradients)
    };
    assert!(run([&short[0], &short[1]]) == run([&padded, &short[1]]));
}

#[test]
fn rows_with_nothing_that_counts_are_skipped_and_said() {
    let case = case();
    let masked = line(&[1, 2, 3], |_| false);
    // All that counts is behind the cut.
    let late = line(&(0..30).collect::<Vec<u32>>(), |at| at > 20);
    let data = case.file("rows.jsonl", &format!("{masked}{}{late}", rows()));
    let output = case.train(&data, "out", &["--steps", "1", "--batch-size", "2"]).output().unwrap();
    let note = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && note.contains("2 of 13 rows have no token that counts"), "{note}");
    let record = run_record(&case.path("out"));
    assert_eq!((&record["data"]["chunks"], &record["data"]["rows_passed_over"]), (&11.into(), &2.into()));
    let nothing = case.file("nothing.jsonl", &(masked + &late));
    let message = fail(&mut case.train(&nothing, "none", &["--steps", "1"]), 5);
    assert!(message.contains("nothing.jsonl: no token to predict"), "{message}");
}

#[test]
fn a_row_that_cannot_be_used_is_named_with_its_line_and_remedy() {
    let case = case();
    let good = line(&[1, 2, 3], |_| true);
    let wrong = [
        ("{\"input_ids\": [1, 2, 3], \"labels\": [1, 2]}", "3 input_ids and 2 labels: give each token one"),
        ("{\"input_ids\": [1, 96], \"labels\": [1, 2]}", "input_ids[1] is 96, and the model's vocabulary is 0 to 95"),
        ("{\"input_ids\": [1, 2], \"labels\": [-1, 2]}", "labels[0] is -1: a label is a token"),
        ("{\"input_ids\": [1, 2.5], \"labels\": [1, 2]}", "lists of integers"),
        ("{\"input_ids\": [1, 2]}", "put rows of each kind into a file of their own"),
        ("{\"text\": \"words\"}", "a row of text in a file whose first row has input_ids and labels"),
    ];
    for (row, reason) in wrong {
        let data = case.file("rows.jsonl", &format!("{good}\n{row}\n"));
        let message = fail(&mut case.train(&data, "out", &["--steps", "1"]), 5);
        assert!(message.contains("rows.jsonl:3: ") && message.contains(reason), "{message}");
    }
    let data = case.file("rows.jsonl", &format!("{{\"text\": \"words\"}}\n{good}"));
    let message = fail(&mut case.train(&data, "out", &["--steps", "1"]), 5);
    assert!(message.contains("rows.jsonl is text and the model has no tokenizer.json"), "{message}");
    assert!(!case.path("out").exists() || fs::read_dir(case.path("out")).unwrap().next().is_none());
}

/// By the first row it is known what the others are.
#[test]
fn a_first_row_that_is_no_json_is_not_taken_for_text() {
    let case = case();
    let wrong = [
        (r#"{"input_ids": [1, 2], "labels": [1, 2]} x"#, "trailing characters at column 41"),
        (r#"{"input_ids": [1, 2], "labels": [1, 2], "labels": [1, 2]}"#, "duplicate field `labels` at column 48"),
        (r#"{"input_ids": [1, 2], "lab"#, "EOF while parsing a string at column 26"),
    ];
    for (row, reason) in wrong {
        let data = case.file("rows.jsonl", &format!("\n{row}\n"));
        let message = fail(&mut case.train(&data, "out", &["--steps", "1"]), 5);
        assert!(message.contains(&format!("rows.jsonl:2: {reason}: expected one ")), "{message}");
        assert!(
            message.contains(r#"one JSON object a line, with "input_ids" (and "labels"), "messages""#),
            "{message}"
        );
    }
}

#[test]
fn an_evaluation_scores_the_tokens_that_count() {
    let case = case();
    let score = |name: &str, text: &str| -> serde_json::Value {
        let data = case.file(name, text);
        let mut command = precast();
        command.args(["eval", "--untrained", "--json", "--device", &device(), "--seq-len", "16", "--model"]);
        command.arg(&case.student).arg("--data").arg(data);
        if let Some(bundle) = bundle() {
            command.arg("--bundle").arg(bundle);
        }
        serde_json::from_str(&succeed(&mut command)).unwrap()
    };
    let ids = [9, 4, 33, 2, 8, 71, 5];
    let [all, first, last] =
        [line(&ids, |_| true), line(&ids, |at| at < 4), line(&ids, |at| at >= 4)].map(|row| score("rows.jsonl", &row));
    let part = |score: &serde_json::Value| (score["nll"].as_f64().unwrap(), score["tokens"].as_u64().unwrap());
    assert_eq!([part(&all).1, part(&first).1, part(&last).1], [6, 3, 3]);
    let sum = 3.0 * (part(&first).0 + part(&last).0);
    assert!((6.0 * part(&all).0 / sum - 1.0).abs() < 1e-6);
}
