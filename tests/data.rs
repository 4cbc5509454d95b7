//! Data as people have it: parquet beside .jsonl, directories, broken rows, data larger than what is kept.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Case, fail, fixture, metrics_of, run_record, skipped, succeed, tiny_config, tokenizer, train};

const TEXT: &str = "again and cat mat on sat the <u> <a> <e>";
const TEMPLATE: &str = "{% for m in messages %}{{ '<u> ' if m.role == 'user' else '<a> ' }}{{ m.content }}{{ ' <e> ' }}{% endfor %}\
                        {% if add_generation_prompt %}{{ '<a> ' }}{% endif %}";

fn data(name: &str) -> PathBuf {
    fixture("data").join(name)
}

/// A model that reads words and messages.
fn case() -> Case {
    let case = Case::new(0);
    let mut words = tokenizer(TEXT);
    words["pre_tokenizer"] = serde_json::json!({"type": "WhitespaceSplit"});
    fs::write(case.student.join("tokenizer.json"), words.to_string()).unwrap();
    fs::write(case.student.join("chat_template.jinja"), TEMPLATE).unwrap();
    case
}

impl Case {
    fn run_on(&self, data: &[PathBuf], out: &str, arguments: &[&str]) -> Command {
        let mut command = train(&self.student, &data[0], &self.path(out));
        for data in &data[1..] {
            command.arg("--data").arg(data);
        }
        command.args(["--batch-size", "2", "--seq-len", "16", "--precision", "fp32", "--steps", "3", "--lr", "1e-2"]);
        command.args(arguments);
        command
    }

    fn data_losses(&self, data: &[PathBuf], out: &str, arguments: &[&str]) -> Vec<(u64, Option<f64>)> {
        succeed(&mut self.run_on(data, out, arguments));
        metrics_of(&self.path(out)).iter().map(|record| (record.tokens, record.loss)).collect()
    }

    fn data_refused(&self, data: &[PathBuf], arguments: &[&str]) -> String {
        let message = fail(&mut self.run_on(data, "refused", arguments), 5);
        assert!(!self.path("refused").exists(), "{message}");
        let root = fixture("data").display().to_string();
        message.replace(&self.dir.path().display().to_string(), "DIR").replace(&root, "DATA")
    }
}

#[test]
fn a_table_of_parquet_trains_as_its_lines_do() {
    let case = case();
    for name in ["text", "ids", "plain", "messages", "completion"] {
        let [table, lines] = ["parquet", "jsonl"]
            .map(|form| case.data_losses(&[data(&format!("{name}.{form}"))], &format!("{name}-{form}"), &[]));
        assert_eq!(table, lines, "{name}");
    }
    let summary = &run_record(&case.path("messages-parquet"))["data"];
    assert_eq!((&summary["rows"], &summary["files"]), (&10.into(), &"1 file of rows of messages".into()), "{summary}");
    // Both of one pass: three rows of two turns, and what the user says does not count.
    assert!(summary["masked"].as_u64().unwrap() > 0 && summary["cut"] == 0, "{summary}");
    let named = case.data_losses(&[data("words.parquet")], "words", &["--data-field", "words"]);
    assert_eq!(named[0].0, 2, "two words, a row of two");
}

#[test]
fn several_data_follow_each_other_and_a_directory_is_its_files() {
    let case = case();
    let directory = case.path("data");
    fs::create_dir(&directory).unwrap();
    fs::copy(data("ids.jsonl"), directory.join("1.jsonl")).unwrap();
    fs::copy(data("ids.parquet"), directory.join("2.parquet")).unwrap();
    let both = case.data_losses(&[data("ids.jsonl"), data("ids.parquet")], "both", &["--steps", "12"]);
    assert_eq!(both, case.data_losses(std::slice::from_ref(&directory), "directory", &["--steps", "12"]));
    assert_eq!(run_record(&case.path("both"))["data"]["sha256"], run_record(&case.path("directory"))["data"]["sha256"]);
    let mixed = case.data_losses(&[data("text.jsonl"), data("messages.parquet")], "mixed", &[]);
    assert_eq!(mixed.len(), 3);
    fs::copy(data("text.jsonl"), directory.join("3.jsonl")).unwrap();
    let message = case.data_refused(&[directory], &[]);
    assert!(
        message.contains("DIR/data: 1.jsonl has rows of input_ids and labels, and 3.jsonl has rows of text"),
        "{message}"
    );
}

#[test]
fn what_people_read_when_rows_are_broken() {
    let case = case();
    let rows = |text: &str| {
        let path = case.path("rows.jsonl");
        fs::write(&path, text).unwrap();
        vec![path]
    };
    let turn = r#"{"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "cat"}]}"#;
    let mut messages = vec![
        case.data_refused(&[data("words.parquet")], &[]),
        case.data_refused(&[data("null.parquet")], &[]),
        case.data_refused(&[data("brotli.parquet")], &[]),
        case.data_refused(&[data("text.jsonl")], &["--data-field", "body"]),
        case.data_refused(&rows("{\"messages\": [{\"role\": \"user\", \"content\": \"the\"}, {\"role\": \"assistant\", \"content\": \"\"}]}"), &[]),
        case.data_refused(&rows(&format!("{turn}\n{}\n", r#"{"messages": "the cat"}"#)), &[]),
        case.data_refused(&rows(&format!("{turn}\n{}\n", r#"{"messages": [{"content": "the"}]}"#)), &[]),
        case.data_refused(&rows(&format!("{turn}\n{}\n", r#"{"messages": [{"role": "user""#)), &[]),
    ];
    let cut = case.path("cut.parquet");
    let bytes = fs::read(data("text.parquet")).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 9]).unwrap();
    messages.push(case.data_refused(&[cut], &[]));
    let template = case.student.join("chat_template.jinja");
    fs::write(&template, "{{ raise_exception('Conversation roles must alternate') }}").unwrap();
    messages.push(case.data_refused(&[data("messages.jsonl")], &[]));
    fs::write(&template, "{% for m in messages %}").unwrap();
    messages.push(case.data_refused(&[data("messages.jsonl")], &[]));
    fs::remove_file(&template).unwrap();
    messages.push(case.data_refused(&[data("messages.jsonl")], &[]));
    insta::assert_snapshot!(messages.concat());
}

/// A damaged table is an error, wherever it is damaged, and never a panic.
#[test]
fn damaged_tables_never_panic() {
    let case = case();
    let bytes = fs::read(data("messages.parquet")).unwrap();
    let path = case.path("damaged.parquet");
    for at in (4..bytes.len()).step_by(bytes.len() / 12) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        fs::write(&path, damaged).unwrap();
        let output = case.run_on(std::slice::from_ref(&path), "out", &["--dry-run"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 5)) && !stderr.contains("panicked"), "byte {at}: {stderr}");
    }
}

#[test]
fn a_run_on_messages_continues_only_under_its_template() {
    let case = case();
    let run = |arguments: &[&str]| {
        let all = ["--checkpoint-every", "1", "--shuffle", "true", "--shuffle-window", "3"];
        case.run_on(&[data("messages.parquet")], "out", &[&all, arguments].concat())
    };
    succeed(&mut run(&["--steps", "2"]));
    let whole = case.path("whole");
    let mut straight = run(&["--steps", "9"]);
    succeed(straight.arg("--out").arg(&whole));
    let message = fail(&mut run(&["--steps", "9", "--resume", "--shuffle-window", "4"]), 2);
    assert!(message.contains("shuffle_window was 3, is 4"), "{message}");
    let template = case.student.join("chat_template.jinja");
    fs::write(&template, format!("<e> {TEMPLATE}")).unwrap();
    let message = fail(&mut run(&["--steps", "9", "--resume"]), 2);
    assert!(message.contains("packing was chat 1 "), "{message}");
    fs::write(&template, TEMPLATE).unwrap();
    succeed(&mut run(&["--steps", "9", "--resume"]));
    let weights = |out: &str| fs::read(case.path(out).join("student/model.safetensors")).unwrap();
    assert!(weights("out") == weights("whole"));
}

/// What a template says of the day is part of the data.
#[test]
fn a_run_says_the_day_that_it_is_given_and_no_other() {
    let case = case();
    fs::write(case.student.join("chat_template.jinja"), format!("{{{{ strftime_now('%d') }}}} {TEMPLATE}")).unwrap();
    let messages = [data("messages.jsonl")];
    let message = case.data_refused(&messages, &[]);
    assert!(message.contains("the chat template refuses the row: ") && message.contains("strftime_now"), "{message}");
    let run = |steps: &str, date: &str, more: &[&str]| {
        case.run_on(&messages, "out", &[&["--steps", steps, "--chat-date", date][..], more].concat())
    };
    succeed(&mut run("1", "2024-07-26", &[]));
    assert_eq!(run_record(&case.path("out"))["config"]["chat_date"], "2024-07-26");
    let message = fail(&mut run("2", "2024-07-27", &["--resume"]), 2);
    assert!(message.contains("packing was chat 1 "), "{message}");
    succeed(&mut run("2", "2024-07-26", &["--resume"]));
}

/// More than is kept and read ahead: a run in which every pass is read again, killed and continued, has the bits of one that was
/// not, and what is wrong behind what is read ahead ends it there.
#[test]
fn data_larger_than_what_is_read_ahead_train_and_continue() {
    if skipped(!crate::support::is_sim(), "it is about data, not devices") {
        return;
    }
    let long = tiny_config(&[("max_position_embeddings", 512.into())]);
    let case = Case::of([&long, &long], 0);
    let path = case.path("large.jsonl");
    let row = |seed: usize| {
        let ids: Vec<String> = (0..500).map(|at| ((seed * 31 + at * 7) % 96).to_string()).collect();
        format!("{{\"input_ids\": [{}]}}\n", ids.join(","))
    };
    // 600 thousand tokens, a row longer than what a step takes of it.
    let rows: String = (0..1200).map(row).collect();
    fs::write(&path, &rows).unwrap();
    let run = |out: &str, arguments: &[&str]| {
        let mut command = train(&case.student, &path, &case.path(out));
        command.args(["--batch-size", "2", "--seq-len", "499", "--precision", "fp32", "--checkpoint-every", "1"]);
        command.args(arguments);
        command
    };
    let said = succeed(&mut run("out", &["--steps", "1"]));
    assert!(said.contains("rows of input_ids alone: read while the run trains"), "{said}");
    succeed(&mut run("out", &["--steps", "2", "--resume"]));
    succeed(&mut run("whole", &["--steps", "2"]));
    let weights = |out: &str| fs::read(case.path(out).join("student/model.safetensors")).unwrap();
    assert!(weights("out") == weights("whole"));
    let record = run_record(&case.path("out"));
    assert!(record["data"]["sha256"].is_string() && record["data"].get("rows").is_none(), "{}", record["data"]);
    // A dry run reads everything.
    fs::write(&path, rows + "{\"input_ids\": [96]}\n").unwrap();
    let message = fail(&mut run("dry", &["--steps", "1", "--dry-run"]), 5);
    assert!(message.contains("large.jsonl:1201: input_ids[0] is 96"), "{message}");
}
