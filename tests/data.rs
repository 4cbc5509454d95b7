//! Data as people have it: parquet beside .jsonl, directories, broken rows, data larger than what is kept.

use std::sync::Arc;

use parquet::data_type::ByteArrayType;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use precast::inputs::checkpoint::Checkpoint;

use crate::support::prelude::*;

const RUN: &str = "--precision fp32 --steps 3 --lr 1e-2";

/// Steps on data that arguments name.
fn run(case: &Case, out: &str, arguments: &str) -> Command {
    case.train(out, [RUN, arguments])
}

/// Tokens and loss of each step.
fn steps(case: &Case, out: &str, arguments: &str) -> Vec<(u64, Option<f64>)> {
    run(case, out, arguments).succeeds();
    case.metrics(out).iter().map(|record| (record.tokens, record.loss)).collect()
}

fn refused(case: &Case, data: &str, said: &str) {
    let message = run(case, "refused", &format!("--data {data}")).fails(5, said);
    assert!(!case.has("refused"), "{message}");
}

#[test]
fn a_table_of_parquet_trains_as_its_lines_do() {
    let case = case_of_words();
    for name in ["text", "ids", "plain", "messages", "completion"] {
        let [table, lines] = ["parquet", "jsonl"]
            .map(|form| steps(&case, &format!("{name}-{form}"), &format!("--data tables/{name}.{form}")));
        assert_eq!(table, lines, "{name}");
    }
    let summary = &case.record("messages-parquet")["data"];
    assert_eq!((&summary["rows"], &summary["files"]), (&10.into(), &"1 file of rows of messages".into()), "{summary}");
    // Both of one pass: three rows of two turns, and what the user says does not count.
    assert!(summary["masked"].as_u64().unwrap() > 0 && summary["cut"] == 0, "{summary}");
    let named = steps(&case, "words", "--data tables/words.parquet --data-field words");
    assert_eq!(named[0].0, 2, "two words, a row of two");
}

#[test]
fn conversations_train_as_what_they_stand_for() {
    let case = case_of_words();
    let losses = |name: &str, row: Value| {
        case.write(&format!("{name}.jsonl"), format!("{row}\n").repeat(4));
        steps(&case, name, &format!("--data {name}.jsonl --seq-len 64"))
    };
    let turns = json!([{"from": "human", "value": "mat on"}, {"from": "gpt", "value": "cat"}]);
    let messages = json!([{"role": "user", "content": "mat on"}, {"role": "assistant", "content": "cat"}]);
    assert_eq!(losses("turns", json!({"conversations": turns})), losses("messages", json!({"messages": messages})));
    let prompt = "Below is an instruction that describes a task. Write a response that appropriately completes the \
                  request.\n\n### Instruction:\nmat\n\n### Response:\n";
    let completion = losses("completion", json!({"prompt": prompt, "completion": "cat sat"}));
    let instruction = json!({"instruction": "mat", "input": "", "output": "cat sat"});
    assert_eq!(losses("instruction", instruction), completion);
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
    let case = case_of_words();
    let rows: [&[[&str; 2]]; 3] = [
        &[["human", "mat on"], ["gpt", "cat"]],
        &[["system", "the"], ["user", "and"], ["assistant", "the cat"], ["human", "again"], ["model", "sat"]],
        &[["human", "cat"], ["gpt", "sat on the mat"]],
    ];
    for (column, field) in [("conversations", ""), ("talk", "--data-field talk")] {
        turns_table(&case.path(format!("{column}.parquet")), column, &rows);
        let turn = |[from, value]: &[&str; 2]| json!({"from": from, "value": value});
        let line = |turns: &[[&str; 2]]| json!({column: turns.iter().map(turn).collect::<Vec<_>>()}).to_string() + "\n";
        case.write(&format!("{column}.jsonl"), rows.map(line).concat());
        let [of_table, of_lines] = ["parquet", "jsonl"].map(|form| {
            let losses = steps(&case, form, &format!("--data {column}.{form} --overwrite {field}"));
            let data = case.record(form)["data"].clone();
            (losses, ["rows", "chunks", "tokens", "masked"].map(|name| data[name].clone()), case.weights(form))
        });
        assert!(of_table == of_lines, "{column}: {:?} {:?}", of_table.0, of_table.1);
        assert_eq!(of_table.1[0], 3, "{column}");
    }
    turns_table(&case.path("wrong.parquet"), "conversations", &[rows[0], &[["narrator", "sat"]]]);
    refused(&case, "wrong.parquet", "wrong.parquet:");
    refused(&case, "wrong.parquet", "conversations[0]: from is \"narrator\"");
}

/// Padding that a mask names is not there: neither in what is learnt nor in what is counted, wherever it stands.
#[test]
fn rows_that_are_padded_train_as_those_that_are_not() {
    let case = case_of_words();
    let unpadded = case.text("tables/masked.jsonl").replace("0, 0, 5", "5").replace("7, 0, 0", "7");
    let unpadded = unpadded.replace("-100, -100, -100", "-100").replace("attention_mask", "other");
    case.write("plain.jsonl", unpadded);
    for (name, field) in [("labels", ""), ("ids", "--data-field input_ids")] {
        let (out, counts) = (format!("{name}-plain"), |out: &str| case.record(out)["data"].clone());
        let expected = steps(&case, &out, &format!("--data plain.jsonl {field}"));
        for form in ["jsonl", "parquet"] {
            let padded = format!("{name}-{form}");
            assert_eq!(steps(&case, &padded, &format!("--data tables/masked.{form} {field}")), expected, "{padded}");
            assert!(case.weights(&padded) == case.weights(&out), "{padded}");
            for count in ["rows", "chunks", "tokens", "masked", "cut", "rows_passed_over"] {
                assert_eq!(counts(&padded)[count], counts(&out)[count], "{padded} {count}");
            }
        }
    }
}

/// What is usually a mistake and trains all the same is said, with the remedy.
#[test]
fn what_people_read_of_data_that_are_not_what_they_seem() {
    let case = case_of_words();
    let notes = |out: &str, arguments: &str| without_trust(&run(&case, out, arguments).says()[1]);
    token_file(case.dir.path(), "ids.bin", 17 * 2 + 5, 96);
    token_file(case.dir.path(), "other.bin", 17 * 2 + 1, 96);
    std::os::unix::fs::symlink("tables/plain.jsonl", case.path("link.jsonl")).unwrap();
    let late_row = |first: usize| {
        let labels: Vec<i64> = (0..30).map(|at| if at < first { -100 } else { 7 }).collect();
        json!({"input_ids": vec![7; 30], "labels": labels}).to_string() + "\n"
    };
    case.write("late.jsonl", late_row(3) + &late_row(20) + &late_row(25));
    let row = |[asks, answers]: [&str; 2]| {
        let message = |role: &str| json!({"role": role, "content": "the cat"});
        json!({"messages": [message(asks), message(answers)]}).to_string() + "\n"
    };
    case.write("roles.jsonl", [["user", "assistant"], ["user", "bot"], ["human", "gpt"]].map(row).concat());
    case.write("some.jsonl", "{\"text\": \"the cat\"}\n{\"text\": \"\"}\n");
    let said = [
        notes("tail", "--data ids.bin --eval-data other.bin"),
        notes("tails", "--data ids.bin --data other.bin"),
        notes("link", "--data tables/plain.jsonl --data link.jsonl"),
        notes("twice", "--data tables/ids.jsonl --data tables/ids.jsonl --eval-data tables/ids.jsonl --seq-len 3"),
        notes("both", "--data tables/ids.jsonl --data ids.bin --eval-data ids.bin"),
        notes("warmup", "--data tables/ids.jsonl --warmup 4 --seq-len 3"),
        notes("late", "--data late.jsonl"),
        notes("roles", "--data roles.jsonl"),
        notes("some", "--data some.jsonl"),
    ];
    insta::assert_snapshot!(said.concat());
    // As data sets are published: a page about them, and rows to hold out.
    fs::create_dir(case.path("rows")).unwrap();
    let rows = case.read("tables/ids.jsonl");
    for name in ["train.jsonl", "testimony.jsonl"] {
        case.write(&format!("rows/{name}"), &rows);
    }
    assert_eq!(notes("plain-set", "--data rows --seq-len 3"), "");
    case.write("rows/test-00000.jsonl", &rows);
    for name in ["README.md", "license", "Datasheet.txt"] {
        case.write(&format!("rows/{name}"), "About the rows.");
    }
    insta::assert_snapshot!("a_data_set", notes("set", "--data rows --eval-data rows --seq-len 3"));
    assert_eq!(notes("none", "--data tables/ids.jsonl --warmup 3 --seq-len 3"), "");
}

#[test]
fn what_data_prints_of_rows() {
    let case = case_of_words();
    let turns =
        |content: &str| json!([{"role": "user", "content": "mat on"}, {"role": "assistant", "content": content}]);
    case.write(
        "chats.jsonl",
        ["cat", "", "the cat"].map(|content| json!({"messages": turns(content)}).to_string()).join("\n"),
    );
    case.write("rows.csv", "prompt,completion\nthe mat ,sat on the cat\n");
    case.write("text.txt", "the cat sat on the mat");
    case.write("ids.bin", [1u32, 5, 6, 7, 9, 3].map(u32::to_le_bytes).concat());
    let print = |arguments: &str| {
        let (code, stdout, stderr) = case.run(["data --model student", arguments]).ends();
        format!("{arguments}: {code:?}\n{stdout}{stderr}")
    };
    let said =
        ["chats.jsonl", "rows.csv text.txt ids.bin --seq-len 4 --rows 2", "rows.csv chats.jsonl --json --rows 2"]
            .map(print);
    insta::assert_snapshot!(said.join("\n"));
}

/// A token that tokenizer_config.json alone has is one token, in training and beside a student that has none.
#[test]
fn tokens_of_a_tokenizers_configuration_are_not_split() {
    let case = case_of_words();
    case.write("text.jsonl", "{\"text\": \"the<think>cat the<think>cat\"}\n");
    let tokens = |out: &str| steps(&case, out, "--data text.jsonl --batch-size 1")[0].0;
    assert_eq!(tokens("split"), 1);
    let config = r#"{"added_tokens_decoder": {"10": {"content": "<think>", "normalized": false}}}"#;
    case.write("student/tokenizer_config.json", config);
    assert_eq!(tokens("whole"), 5);
    // Two models with one tokenizer.json, of which one has the token.
    case.write("teacher/tokenizer.json", case.read("student/tokenizer.json"));
    let (_, _, stderr) = case.distill("taught", "--data text.jsonl --steps 1").ends();
    assert!(stderr.contains("1 token only the student has: `<think>` (10)"), "{stderr}");
}

#[test]
fn several_data_follow_each_other_as_files_of_a_directory_do() {
    let case = case_of_words();
    fs::create_dir(case.path("data")).unwrap();
    case.write("data/1.jsonl", case.read("tables/ids.jsonl"));
    case.write("data/2.parquet", case.read("tables/ids.parquet"));
    let both = steps(&case, "both", "--data tables/ids.jsonl --data tables/ids.parquet --steps 12");
    assert_eq!(both, steps(&case, "directory", "--data data --steps 12"));
    assert_eq!(case.record("both")["data"]["sha256"], case.record("directory")["data"]["sha256"]);
    let mixed = steps(&case, "mixed", "--data tables/text.jsonl --data tables/messages.parquet");
    assert_eq!(mixed.len(), 3);
}

/// A damaged table is an error, wherever it is damaged, and never a panic.
#[test]
fn damaged_tables_never_panic() {
    let case = case_of_words();
    let bytes = case.read("tables/messages.parquet");
    for at in (4..bytes.len()).step_by(bytes.len() / 12) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        case.write("damaged.parquet", damaged);
        let (code, _, stderr) = run(&case, "out", "--data damaged.parquet --dry-run").ends();
        assert!(matches!(code, Some(0 | 5)) && !stderr.contains("panicked"), "byte {at}: {stderr}");
    }
}

#[test]
fn a_run_on_messages_continues_only_under_its_template() {
    let case = case_of_words();
    let run = |out: &str, arguments: &str| {
        let all = "--data tables/messages.parquet --checkpoint-every 1 --shuffle true --shuffle-window 3";
        run(&case, out, &format!("{all} {arguments}"))
    };
    run("out", "--steps 2").succeeds();
    run("whole", "--steps 9").succeeds();
    run("out", "--steps 9 --resume --shuffle-window 4").fails(2, "shuffle_window was 3, is 4");
    case.write("student/chat_template.jinja", format!("<e> {TEMPLATE}"));
    run("out", "--steps 9 --resume").fails(2, "packing was chat 1 ");
    case.write("student/chat_template.jinja", TEMPLATE);
    run("out", "--steps 9 --resume").succeeds();
    assert!(case.weights("out") == case.weights("whole"));
}

/// The program that renders is this one, as a process of its own.
#[test]
fn a_row_whose_template_takes_all_memory_is_named() {
    let case = case_of_words();
    let grows = "{% set n = namespace(x='ab') %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}";
    let of_long = "{% if messages[0].content == 'long' %}";
    case.write("student/chat_template.jinja", format!("{of_long}{grows}{{% endif %}}{TEMPLATE}"));
    let row = |text: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "{text}"}}, {{"role": "assistant", "content": "two three"}}]}}"#
        )
    };
    case.write("rows.jsonl", format!("{}\n{}\n", row("one"), row("long")));
    let what =
        "rows.jsonl:2: the chat template refuses the row: it takes more than 1024 MiB of memory, or nests too deeply";
    run(&case, "out", "--data rows.jsonl --steps 1").fails(5, what);
}

/// The day and thinking, as a template says them, are part of the data.
#[test]
fn a_run_says_to_templates_what_it_is_given_and_nothing_else() {
    let case = case_of_words();
    case.write("student/chat_template.jinja", format!("{{{{ strftime_now('%d') }}}} {TEMPLATE}"));
    let run = |arguments: &str| run(&case, "out", &format!("--data tables/messages.jsonl {arguments}"));
    run("--steps 1 --chat-date 2024-07-26").succeeds();
    assert_eq!(case.record("out")["config"]["chat_date"], "2024-07-26");
    run("--steps 2 --chat-date 2024-07-27 --resume").fails(2, "packing was chat 1 ");
    run("--steps 2 --chat-date 2024-07-26 --enable-thinking false --resume").fails(2, "packing was chat 1 ");
    run("--steps 2 --chat-date 2024-07-26 --resume").succeeds();
}

/// More than is kept and read ahead: a run in which every pass is read again, killed and continued, has the bits of one
/// that was not, and what is wrong behind what is read ahead ends it there.
#[test]
fn data_larger_than_what_is_read_ahead_train_and_continue() {
    skip_if!(skipped(!is_sim(), "it is about data, not devices"));
    let long = tiny_config(&[("max_position_embeddings", 512.into())]);
    let case = Case::of([&long, &long], 0);
    let row = |seed: usize| {
        let ids: Vec<String> = (0..500).map(|at| ((seed * 31 + at * 7) % 96).to_string()).collect();
        format!("{{\"input_ids\": [{}]}}\n", ids.join(","))
    };
    // 600 thousand tokens, a row longer than what a step takes of it.
    let rows: String = (0..1200).map(row).collect();
    case.write("large.jsonl", &rows);
    let run = |out: &str, arguments: &str| {
        let all = "--data large.jsonl --seq-len 499 --precision fp32 --checkpoint-every 1";
        case.train(out, [all, arguments])
    };
    run("out", "--steps 1").prints("rows of input_ids alone: read while the run trains");
    run("out", "--steps 2 --resume").succeeds();
    run("whole", "--steps 2").succeeds();
    assert!(case.weights("out") == case.weights("whole"));
    let record = case.record("out");
    assert!(record["data"]["sha256"].is_string() && record["data"].get("rows").is_none(), "{}", record["data"]);
    // A dry run reads everything.
    case.write("large.jsonl", rows + "{\"input_ids\": [96]}\n");
    let message = run("dry", "--steps 1 --dry-run").fails(5, "large.jsonl:1201: input_ids[0] is 96");
    assert!(!message.contains("dry-run"), "{message}");
    // A run whose first step shuffles all of it comes to the row after its start.
    let message =
        run("late", "--steps 1 --shuffle true --shuffle-window 1300").fails(5, "large.jsonl:1201: input_ids[0] is 96");
    assert!(message.trim_end().ends_with(". `--dry-run` reads all rows before a run"), "{message}");
}

/// A student without a template learns chats as one that has its teacher's, and is written with that.
#[test]
fn a_teachers_template_serves_a_student_that_has_none() {
    let case = case_of_words();
    for name in ["tokenizer.json", "chat_template.jinja"] {
        case.write(&format!("teacher/{name}"), case.read(format!("student/{name}")));
    }
    case.write("teacher/tokenizer_config.json", r#"{"bos_token": "again", "eos_token": "<e>"}"#);
    case.write("student/tokenizer_config.json", r#"{"eos_token": "mat"}"#);
    let run =
        |out: &str, more: &str| case.distill(out, ["--data tables/messages.jsonl --precision fp32 --steps 2", more]);
    let [_, own] = run("own", "").says();
    assert!(!own.contains("chat template"), "{own}");
    fs::remove_file(case.path("student/chat_template.jinja")).unwrap();
    let [_, taken] = run("taken", "").says();
    let said = "note: the student has no chat template: its teacher's is used, and written with it\n";
    assert!(taken.contains(said), "{taken}");
    assert_eq!(case.losses("own"), case.losses("taken"));
    let written = Checkpoint::open(&case.path("taken/student")).unwrap().chat_source().unwrap().unwrap();
    let tokens = [("bos_token", "again"), ("eos_token", "mat")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!((&*written.default, written.constants), (TEMPLATE, tokens.to_vec()));
    let [_, adapter] = run("adapter", "--lora-rank 2").says();
    assert!(adapter.contains("its teacher's is used, and not written with the adapter"), "{adapter}");
}

/// As of the day of the run, whether the student has a tokenizer or is written with its teacher's.
#[test]
fn a_teachers_template_says_the_day_of_the_run() {
    let mut case = case_of_words();
    case.data = case.path("tables/messages.jsonl");
    let dated = format!("{{{{ strftime_now('%d') }}}} {TEMPLATE}");
    case.write("teacher/tokenizer.json", case.read("student/tokenizer.json"));
    case.write("teacher/chat_template.jinja", &dated);
    for (out, removed) in [("taken", "chat_template.jinja"), ("written", "tokenizer.json")] {
        fs::remove_file(case.student.join(removed)).unwrap();
        case.distill("refused", "").fails(5, "strftime_now");
        case.distill(out, "--steps 1 --chat-date 2024-07-26").succeeds();
        let student = Checkpoint::open(&case.path(out).join("student")).unwrap();
        assert!(student.tokenizer().unwrap().is_some(), "{out}");
        assert_eq!(*student.chat_source().unwrap().unwrap().default, *dated, "{out}");
    }
}
