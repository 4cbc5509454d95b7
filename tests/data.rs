//! Data as people have it: parquet beside .jsonl, directories, broken rows, data larger than what is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use parquet::data_type::ByteArrayType;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use precast::inputs::checkpoint::Checkpoint;

use crate::support::{
    Case, distill, fail, fixture, metrics_of, run_record, skipped, succeed, texts, tiny_config, token_file, tokenizer,
    train, without_trust,
};

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
fn conversations_and_instructions_train_as_what_they_stand_for() {
    let case = case();
    let losses = |name: &str, row: &str| {
        let path = case.path(format!("{name}.jsonl"));
        fs::write(&path, row.repeat(4)).unwrap();
        case.data_losses(&[path], name, &["--seq-len", "64"])
    };
    let turns = losses(
        "turns",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"mat on\"}, {\"from\": \"gpt\", \"value\": \"cat\"}]}\n",
    );
    let messages = losses(
        "messages",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"mat on\"}, {\"role\": \"assistant\", \"content\": \"cat\"}]}\n",
    );
    assert_eq!(turns, messages);
    let prompt = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\\n\\n### \
                  Instruction:\\nmat\\n\\n### Response:\\n";
    let completion = losses("completion", &format!("{{\"prompt\": \"{prompt}\", \"completion\": \"cat sat\"}}\n"));
    assert_eq!(
        losses("instruction", "{\"instruction\": \"mat\", \"input\": \"\", \"output\": \"cat sat\"}\n"),
        completion
    );
    let near = case.path("near.jsonl");
    fs::write(&near, "{\"conversation\": []}\n").unwrap();
    let message = case.data_refused(&[near], &[]);
    assert!(message.contains("DIR/near.jsonl:1: no column `conversations`"), "{message}");
}

/// Writes rows of turns, each of who speaks and what, as a column of a list of structs.
fn turns_table(path: &Path, column: &str, rows: &[&[[&str; 2]]]) {
    let schema = format!(
        "message rows {{ OPTIONAL group {column} (LIST) {{ REPEATED group list {{ OPTIONAL group element {{
             OPTIONAL BINARY from (UTF8); OPTIONAL BINARY value (UTF8); }} }} }} }}"
    );
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut file = SerializedFileWriter::new(fs::File::create(path).unwrap(), schema, Arc::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    // Nothing is null at any of four levels, and every turn but a row's first repeats the list.
    let repeats: Vec<i16> = rows.iter().flat_map(|turns| (0..turns.len()).map(|at| i16::from(at > 0))).collect();
    for which in 0..2 {
        let values: Vec<_> = rows.concat().iter().map(|turn| turn[which].into()).collect();
        let mut column = group.next_column().unwrap().unwrap();
        let levels = vec![4; values.len()];
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), Some(&repeats)).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
}

#[test]
fn a_table_of_conversations_trains_as_its_lines_do() {
    let case = case();
    let rows: [&[[&str; 2]]; 3] = [
        &[["human", "mat on"], ["gpt", "cat"]],
        &[["system", "the"], ["user", "and"], ["assistant", "the cat"], ["human", "again"], ["model", "sat"]],
        &[["human", "cat"], ["gpt", "sat on the mat"]],
    ];
    for (column, arguments) in [("conversations", &[][..]), ("talk", &["--data-field", "talk"])] {
        let [table, lines] = ["parquet", "jsonl"].map(|form| case.path(format!("{column}.{form}")));
        turns_table(&table, column, &rows);
        let line = |turns: &[[&str; 2]]| {
            let turns: Vec<_> =
                turns.iter().map(|[from, value]| serde_json::json!({"from": from, "value": value})).collect();
            format!("{}\n", serde_json::json!({ column: turns }))
        };
        fs::write(&lines, rows.map(line).concat()).unwrap();
        let [of_table, of_lines] = [&table, &lines].map(|path| {
            let out = format!("{}-out", path.extension().unwrap().display());
            let losses = case.data_losses(std::slice::from_ref(path), &out, &[arguments, &["--overwrite"]].concat());
            let data = run_record(&case.path(&out))["data"].clone();
            let weights = fs::read(case.path(&out).join("student/model.safetensors")).unwrap();
            (losses, ["rows", "chunks", "tokens", "masked"].map(|name| data[name].clone()), weights)
        });
        assert!(of_table == of_lines, "{column}: {:?} {:?}", of_table.0, of_table.1);
        assert_eq!(of_table.1[0], 3, "{column}");
    }
    let wrong = case.path("wrong.parquet");
    turns_table(&wrong, "conversations", &[rows[0], &[["narrator", "sat"]]]);
    let message = case.data_refused(&[wrong], &[]);
    assert!(
        message.contains("DIR/wrong.parquet:") && message.contains("conversations[0]: from is \"narrator\""),
        "{message}"
    );
}

/// Padding that a mask names is not there: neither in what is learnt nor in what is counted, wherever it stands.
#[test]
fn rows_that_are_padded_train_as_those_that_are_not() {
    let case = case();
    let unpadded = fs::read_to_string(data("masked.jsonl")).unwrap().replace("0, 0, 5", "5").replace("7, 0, 0", "7");
    let unpadded = unpadded.replace("-100, -100, -100", "-100").replace("attention_mask", "other");
    let plain = case.path("plain.jsonl");
    fs::write(&plain, unpadded).unwrap();
    for (name, arguments) in [("labels", &[][..]), ("ids", &["--data-field", "input_ids"])] {
        let weights = |out: &str| fs::read(case.path(out).join("student/model.safetensors")).unwrap();
        let (out, counts) = (format!("{name}-plain"), |out: &str| run_record(&case.path(out))["data"].clone());
        let expected = case.data_losses(std::slice::from_ref(&plain), &out, arguments);
        for form in ["jsonl", "parquet"] {
            let padded = format!("{name}-{form}");
            assert_eq!(case.data_losses(&[data(&format!("masked.{form}"))], &padded, arguments), expected, "{padded}");
            assert!(weights(&padded) == weights(&out), "{padded}");
            for count in ["rows", "chunks", "tokens", "masked", "cut", "rows_passed_over"] {
                assert_eq!(counts(&padded)[count], counts(&out)[count], "{padded} {count}");
            }
        }
    }
}

#[test]
fn what_people_read_when_a_mask_is_none() {
    let case = case();
    let good = r#"{"input_ids": [1, 2, 3], "attention_mask": [true, 1, 0]}"#;
    let masks = ["[1, 0, 1]", "[1, 1]", "[1, 1, 2]", "[1, 1, 0.0]", "[1, 1, -1]", "[1, 1, null]", "\"110\""];
    let messages = masks.map(|mask| {
        let path = case.path("rows.jsonl");
        fs::write(&path, format!("{good}\n{{\"input_ids\": [1, 2, 3], \"attention_mask\": {mask}}}\n")).unwrap();
        case.data_refused(&[path], &[])
    });
    insta::assert_snapshot!(messages.concat());
}

/// What is usually a mistake and trains all the same is said, with the remedy.
#[test]
fn what_people_read_of_data_that_are_not_what_they_seem() {
    let case = case();
    let notes = |data: &[PathBuf], out: &str, arguments: &[&str]| {
        let output = case.run_on(data, out, arguments).output().unwrap();
        let (_, stderr) = texts(&output);
        assert!(output.status.success(), "{stderr}");
        let root = fixture("data").display().to_string();
        without_trust(&stderr).replace(&case.dir.path().display().to_string(), "DIR").replace(&root, "DATA")
    };
    let ids = token_file(case.dir.path(), "ids.bin", 17 * 2 + 5, 96);
    let other = token_file(case.dir.path(), "other.bin", 17 * 2 + 1, 96);
    let link = case.path("link.jsonl");
    std::os::unix::fs::symlink(data("plain.jsonl"), &link).unwrap();
    let [shared, held_out] = [data("ids.jsonl"), ids.clone()].map(|path| path.display().to_string());
    let late = case.path("late.jsonl");
    let late_row = |first: usize| {
        let labels: Vec<i64> = (0..30).map(|at| if at < first { -100 } else { 7 }).collect();
        format!("{{\"input_ids\": {:?}, \"labels\": {labels:?}}}\n", [7; 30])
    };
    fs::write(&late, late_row(3) + &late_row(20) + &late_row(25)).unwrap();
    let roles = case.path("roles.jsonl");
    let row = |[asks, answers]: [&str; 2]| {
        let message = |role: &str| serde_json::json!({"role": role, "content": "the cat"});
        format!("{}\n", serde_json::json!({"messages": [message(asks), message(answers)]}))
    };
    fs::write(&roles, [["user", "assistant"], ["user", "bot"], ["human", "gpt"]].map(row).concat()).unwrap();
    let some = case.path("some.jsonl");
    fs::write(&some, "{\"text\": \"the cat\"}\n{\"text\": \"\"}\n").unwrap();
    let said = [
        notes(std::slice::from_ref(&ids), "tail", &["--eval-data", &other.display().to_string()]),
        notes(&[ids.clone(), other], "tails", &[]),
        notes(&[data("plain.jsonl"), link], "link", &[]),
        notes(&[data("ids.jsonl"), data("ids.jsonl")], "twice", &["--eval-data", &shared]),
        notes(&[data("ids.jsonl"), ids], "both", &["--eval-data", &held_out]),
        notes(&[data("ids.jsonl")], "warmup", &["--warmup", "4"]),
        notes(&[late], "late", &[]),
        notes(&[roles], "roles", &[]),
        notes(&[some], "some", &[]),
    ];
    insta::assert_snapshot!(said.concat());
    // As data sets are published: a page about them, and rows to hold out.
    let set = case.path("rows");
    fs::create_dir(&set).unwrap();
    for name in ["train.jsonl", "testimony.jsonl"] {
        fs::copy(data("ids.jsonl"), set.join(name)).unwrap();
    }
    assert_eq!(notes(std::slice::from_ref(&set), "plain-set", &[]), "");
    fs::copy(data("ids.jsonl"), set.join("test-00000.jsonl")).unwrap();
    for name in ["README.md", "license", "Datasheet.txt"] {
        fs::write(set.join(name), "About the rows.").unwrap();
    }
    let held_out = set.display().to_string();
    insta::assert_snapshot!("a_data_set", notes(&[set], "set", &["--eval-data", &held_out]));
    assert_eq!(notes(&[data("ids.jsonl")], "none", &["--warmup", "3"]), "");
}

#[test]
fn what_people_read_where_there_is_nothing_to_learn() {
    let case = case();
    let file = |name: &str, text: &str| {
        let path = case.path(name);
        fs::write(&path, text).unwrap();
        vec![path]
    };
    let turn = r#"{"messages": [{"role": "user", "content": "WORDS"}, {"role": "assistant", "content": "cat"}]}"#;
    let late = |words: usize| turn.replace("WORDS", &"the ".repeat(words)) + "\n";
    let said = [
        case.data_refused(&file("chats.jsonl", &(late(30) + &late(20) + &late(40))), &[]),
        case.data_refused(&file("chat.jsonl", &late(20)), &[]),
        case.data_refused(&file("texts.jsonl", &"{\"text\": \"\"}\n".repeat(40)), &[]),
        case.data_refused(&file("text.jsonl", "{\"text\": \"\"}\n"), &[]),
        case.data_refused(&file("answers.jsonl", &"{\"prompt\": \"the\", \"completion\": \"\"}\n".repeat(2)), &[]),
        case.data_refused(&file("empty.txt", ""), &[]),
        case.data_refused(&file("empty.jsonl", "\n"), &[]),
        case.data_refused(&file("roles.jsonl", &turn.replace("assistant", "gpt")), &[]),
        case.data_refused(&file("masked.jsonl", "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n"), &[]),
        case.data_refused(&file("padding.jsonl", "{\"input_ids\": [1, 2], \"attention_mask\": [0, 0]}\n"), &[]),
    ];
    insta::assert_snapshot!(said.concat());
    // What a message names is what helps.
    succeed(&mut case.run_on(&file("chats.jsonl", &late(20)), "reached", &["--seq-len", "23"]));
}

/// A token that tokenizer_config.json alone has is one token, in training and beside a student that has none.
#[test]
fn tokens_of_the_configuration_of_a_tokenizer_are_not_split() {
    let case = case();
    let config = r#"{"added_tokens_decoder": {"10": {"content": "<think>", "normalized": false}}}"#;
    let text = case.path("text.jsonl");
    fs::write(&text, "{\"text\": \"the<think>cat the<think>cat\"}\n").unwrap();
    let tokens = |out: &str| case.data_losses(std::slice::from_ref(&text), out, &["--batch-size", "1"])[0].0;
    assert_eq!(tokens("split"), 1);
    fs::write(case.student.join("tokenizer_config.json"), config).unwrap();
    assert_eq!(tokens("whole"), 5);
    // Two models with one tokenizer.json, of which one has the token.
    fs::copy(case.student.join("tokenizer.json"), case.teacher.join("tokenizer.json")).unwrap();
    let mut taught = distill(&case.teacher, &case.student, &text, &case.path("taught"));
    let output = taught.args(["--batch-size", "2", "--seq-len", "16", "--steps", "1"]).output().unwrap();
    let (_, stderr) = texts(&output);
    assert!(stderr.contains("1 token only the student has: `<think>` (10)"), "{stderr}");
    fs::write(case.student.join("tokenizer_config.json"), "{").unwrap();
    let message = case.data_refused(std::slice::from_ref(&text), &[]);
    assert!(message.contains("tokenizer_config.json: EOF while parsing an object"), "{message}");
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
    // As Alpaca and ShareGPT are published: one array of all rows.
    for (name, array) in [("alpaca.json", format!("[{turn}, {turn}]")), ("pretty.jsonl", format!("[\n  {turn}\n]\n"))] {
        let path = case.path(name);
        fs::write(&path, array).unwrap();
        messages.push(case.data_refused(&[path], &[]));
    }
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
    assert!(message.contains("large.jsonl:1201: input_ids[0] is 96") && !message.contains("dry-run"), "{message}");
    // A run whose first step shuffles all of it comes to the row after its start.
    let message = fail(&mut run("late", &["--steps", "1", "--shuffle", "true", "--shuffle-window", "1300"]), 5);
    assert!(message.contains("large.jsonl:1201: input_ids[0] is 96"), "{message}");
    assert!(message.trim_end().ends_with(". `--dry-run` reads all rows before a run"), "{message}");
}

/// A student without a template learns chats as one that has its teacher's, and is written with that.
#[test]
fn a_teachers_template_serves_a_student_that_has_none() {
    let mut case = case();
    case.data = data("messages.jsonl");
    let of = |model: &PathBuf, name: &str| model.join(name);
    fs::copy(of(&case.student, "tokenizer.json"), of(&case.teacher, "tokenizer.json")).unwrap();
    fs::copy(of(&case.student, "chat_template.jinja"), of(&case.teacher, "chat_template.jinja")).unwrap();
    fs::write(of(&case.teacher, "tokenizer_config.json"), r#"{"bos_token": "again", "eos_token": "<e>"}"#).unwrap();
    fs::write(of(&case.student, "tokenizer_config.json"), r#"{"eos_token": "mat"}"#).unwrap();
    let run = |out: &str, arguments: &[&str]| {
        let mut command = case.distill(&case.path(out), &["--precision", "fp32", "--steps", "2"]);
        let output = command.args(arguments).output().unwrap();
        let (_, stderr) = texts(&output);
        (output.status.code(), stderr.replace(&case.dir.path().display().to_string(), "DIR"))
    };
    let losses = |out: &str| metrics_of(&case.path(out)).iter().map(|step| step.loss).collect::<Vec<_>>();
    let (code, own) = run("own", &[]);
    assert!(code == Some(0) && !own.contains("chat template"), "{own}");
    fs::remove_file(of(&case.student, "chat_template.jinja")).unwrap();
    let (code, taken) = run("taken", &[]);
    let said = "note: the student has no chat template: its teacher's is used, and written with it\n";
    assert!(code == Some(0) && taken.contains(said), "{taken}");
    assert_eq!(losses("own"), losses("taken"));
    let written = Checkpoint::open(&case.path("taken/student")).unwrap().chat_source().unwrap().unwrap();
    let tokens = [("bos_token", "again"), ("eos_token", "mat")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!((&*written.default, written.constants), (TEMPLATE, tokens.to_vec()));
    let (code, adapter) = run("adapter", &["--lora-rank", "2"]);
    assert!(
        code == Some(0) && adapter.contains("its teacher's is used, and not written with the adapter"),
        "{adapter}"
    );

    // One token more is another tokenizer, and no template is none.
    let mut more: serde_json::Value =
        serde_json::from_slice(&fs::read(of(&case.teacher, "tokenizer.json")).unwrap()).unwrap();
    more["model"]["vocab"]["more"] = 90.into();
    fs::write(of(&case.teacher, "tokenizer.json"), more.to_string()).unwrap();
    let (code, other) = run("refused", &[]);
    let lacks = "messages.jsonl has messages, and the student DIR/student has no chat template, and that of the teacher \
                 DIR/teacher is not used, since their tokenizers are not the same: put a chat_template.jinja beside";
    assert!(code == Some(5) && other.contains(lacks), "{other}");
    fs::remove_file(of(&case.teacher, "chat_template.jinja")).unwrap();
    let (code, none) = run("refused", &[]);
    let lacks = "neither the student DIR/student nor the teacher DIR/teacher has a chat template: put";
    assert!(code == Some(5) && none.contains(lacks), "{none}");
}

/// As of the day of the run, whether the student has a tokenizer or is written with its teacher's.
#[test]
fn a_teachers_template_says_the_day_of_the_run() {
    let mut case = case();
    case.data = data("messages.jsonl");
    let [tokenizer, template] = ["tokenizer.json", "chat_template.jinja"].map(|name| case.student.join(name));
    let dated = format!("{{{{ strftime_now('%d') }}}} {TEMPLATE}");
    fs::copy(&tokenizer, case.teacher.join("tokenizer.json")).unwrap();
    fs::write(case.teacher.join("chat_template.jinja"), &dated).unwrap();
    fs::remove_file(template).unwrap();
    for (out, removed) in [("taken", None), ("written", Some(tokenizer))] {
        removed.iter().for_each(|file| fs::remove_file(file).unwrap());
        let message = fail(&mut case.distill(&case.path("refused"), &[]), 5);
        assert!(message.contains("strftime_now"), "{out}: {message}");
        succeed(&mut case.distill(&case.path(out), &["--steps", "1", "--chat-date", "2024-07-26"]));
        let student = Checkpoint::open(&case.path(out).join("student")).unwrap();
        assert!(student.tokenizer().unwrap().is_some(), "{out}");
        assert_eq!(*student.chat_source().unwrap().unwrap().default, *dated, "{out}");
    }
}
