//! `precast cache --from` makes a compact cache of log-probabilities that others have computed, with the bits of our
//! own.

use std::sync::Arc;

use parquet::data_type::{FloatType, Int32Type};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use precast_kernels::abi::NO_TOKEN;

use crate::support::Texts;
use crate::support::prelude::*;
use crate::teacher_cache::{contents_of, fill};

/// Tokens that are kept of a position.
const KEEP: usize = 5;
const VOCAB: u32 = 96;

/// A row of tokens with the likeliest of each position but the first.
struct Row {
    ids: Vec<u32>,
    likely: Vec<Vec<(u32, f32)>>,
}

impl Row {
    fn json(&self) -> Value {
        let lists = |one: &dyn Fn(&(u32, f32)) -> Value| {
            let position = |tokens: &Vec<(u32, f32)>| Value::from(tokens.iter().map(one).collect::<Vec<_>>());
            let all: Vec<Value> = std::iter::once(Value::Null).chain(self.likely.iter().map(position)).collect();
            all
        };
        let ids = lists(&|(id, _)| json!(id));
        json!({"input_ids": self.ids, "top_ids": ids, "top_logprobs": lists(&|(_, log_prob)| json!(log_prob))})
    }
}

/// Models of one layer, and six rows, one of them longer than a sequence.
fn case() -> Case {
    let mut case = Case::of_layers(1, 17 * 4);
    let row = |row: u32| (0..[7, 12, 21, 9, 15, 5][row as usize]).map(move |at| (11 * row + 7 * at + at * at) % VOCAB);
    let lines = (0..6).map(|number| json!({"input_ids": row(number).collect::<Vec<u32>>()}).to_string() + "\n");
    case.data = case.write("rows.jsonl", lines.collect::<String>());
    case
}

/// Returns the words of a file.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// Returns what a compact cache of a case's rows has of them, as others would write it.
fn rows_of(case: &Case, cache: &str) -> Vec<Row> {
    let words = words(&case.read(format!("{cache}/hidden.bin")));
    let mut positions = words.chunks_exact(2 * KEEP + 1).map(|row| {
        let (ids, log_probs) = row.split_at(KEEP);
        ids.iter().zip(log_probs).map(|(id, bits)| (*id, f32::from_bits(*bits))).collect::<Vec<_>>()
    });
    let row = |line: &str| {
        let ids: Vec<u32> = list(&serde_json::from_str::<Value>(line).unwrap()["input_ids"]);
        // What is beyond a sequence is in no cache.
        let likely = (1..ids.len()).map(|at| if at < 17 { positions.next().unwrap() } else { vec![(0, -1.0)] });
        Row { likely: likely.collect(), ids: ids.clone() }
    };
    let rows = case.text("rows.jsonl").lines().map(row).collect();
    assert_eq!(positions.next(), None);
    rows
}

/// `precast cache --from` of sequences of 16 tokens.
fn convert(case: &Case, out: &str, words: impl Texts) -> Command {
    let words = words.words().join(" ");
    case.run(format!("cache --student student --seq-len 16 --out {out} {words}"))
}

/// Our own compact cache, and the rows that others would have written of it.
fn filled(words: &str) -> Case {
    let case = case();
    let words = format!("--keep-logits {KEEP} --temperature 1 --student student {words}");
    fill(&case, "own", words).succeeds();
    let lines: String = rows_of(&case, "own").iter().map(|row| row.json().to_string() + "\n").collect();
    case.write("likely.jsonl", lines);
    case
}

#[test]
fn a_cache_of_others_trains_with_the_bits_of_our_own() {
    let case = filled("--precision fp32");
    convert(&case, "others", "--from likely.jsonl").succeeds();
    // All of it is the same but the rest, which others do not say.
    let [own, others] = ["own", "others"].map(|cache| words(&case.read(format!("{cache}/hidden.bin"))));
    assert_eq!(own.len(), others.len());
    for (own, others) in own.chunks_exact(2 * KEEP + 1).zip(others.chunks_exact(2 * KEEP + 1)) {
        assert_eq!(own[..2 * KEEP], others[..2 * KEEP]);
        let [own, others] = [own, others].map(|row| f32::from_bits(row[2 * KEEP]));
        assert!((own - others).abs() < 1e-6, "{own} {others}");
    }
    let how = "--precision fp32 --temperature 1 --beta 0.3 --checkpoint-every 1 --shuffle true";
    let run = |out: &str, cache: &str, words: &str| {
        let from =
            format!("--teacher-cache {cache} --data {}", if cache == "own" { "rows.jsonl" } else { "likely.jsonl" });
        case.distill(out, [&*from, how, words]).succeeds();
    };
    let close = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|out| case.losses(out));
        assert!(one.len() == 4 && one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-5 * a), "{one:?} {other:?}");
    };
    run("run-own", "own", "--steps 4");
    run("run-others", "others", "--steps 4");
    close("run-own", "run-others");
    // Our own cache, with the rest of others.
    for name in ["hidden.bin", "index.bin"] {
        case.write(&format!("own/{name}"), case.read(format!("others/{name}")));
    }
    let digest = case.json("others/cache.json")["index_sha256"].clone();
    let manifest = case.json("own/cache.json")["index_sha256"].as_str().unwrap().to_owned();
    let text = case.text("own/cache.json").replace(&manifest, digest.as_str().unwrap());
    case.write("own/cache.json", text);
    run("run-own", "own", "--steps 4 --overwrite");
    assert!(case.bits("run-own") == case.bits("run-others"));
    // Also where the run goes on.
    run("parts", "others", "--steps 2");
    run("parts", "others", "--steps 4 --resume");
    assert!(case.results("parts") == case.results("run-others"));
    // Log-probabilities are the same in every precision, and each position has some: rows without them do as well.
    case.distill("bf16", "--teacher-cache others --data rows.jsonl --temperature 1 --steps 1").succeeds();
    let refused = case.distill("none", "--teacher-cache others --data likely.jsonl --steps 1").fails(
        2,
        "others has log-probabilities that others computed at temperature 1, and this run uses 2: give --temperature \
         1, or have them computed at temperature 2, and make a cache of those",
    );
    assert!(!case.has("none"), "{refused}");
}

/// Writes one column of lists of lists, which is null at a row's first position, or of ids alone.
fn write_column(group: &mut SerializedRowGroupWriter<'_, std::fs::File>, rows: &[Row], part: usize) {
    let (mut ids, mut log_probs, mut levels, mut repeats) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if part == 0 {
            ids.extend(row.ids.iter().map(|id| *id as i32));
            levels.extend(row.ids.iter().map(|_| 3));
            repeats.extend((0..row.ids.len()).map(|at| i16::from(at > 0)));
            continue;
        }
        levels.push(2);
        repeats.push(0);
        for tokens in &row.likely {
            ids.extend(tokens.iter().map(|(id, _)| *id as i32));
            log_probs.extend(tokens.iter().map(|(_, log_prob)| *log_prob));
            levels.extend(tokens.iter().map(|_| 5));
            repeats.extend((0..tokens.len()).map(|at| if at > 0 { 2 } else { 1 }));
        }
    }
    let mut column = group.next_column().unwrap().unwrap();
    let written = match part {
        2 => column.typed::<FloatType>().write_batch(&log_probs, Some(&levels), Some(&repeats)),
        _ => column.typed::<Int32Type>().write_batch(&ids, Some(&levels), Some(&repeats)),
    };
    written.unwrap();
    column.close().unwrap();
}

#[test]
fn a_table_gives_the_rows_of_its_lines() {
    let case = filled("");
    let list = |name: &str, of: &str| format!("OPTIONAL group {name} (LIST) {{ REPEATED group list {{ {of} }} }}");
    let lists = |name: &str, of: &str| list(name, &list("element", of));
    let [id, log_prob] = ["INT32", "FLOAT"].map(|kind| format!("OPTIONAL {kind} element;"));
    let columns = [list("input_ids", &id), lists("top_ids", &id), lists("top_logprobs", &log_prob)].concat();
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {columns} }}")).unwrap());
    let file = fs::File::create(case.path("likely.parquet")).unwrap();
    let mut file = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let rows = rows_of(&case, "own");
    (0..3).for_each(|part| write_column(&mut group, &rows, part));
    group.close().unwrap();
    file.close().unwrap();
    convert(&case, "lines", "--from likely.jsonl").succeeds();
    convert(&case, "table", "--from likely.parquet").succeeds();
    for name in ["hidden.bin", "index.bin"] {
        assert!(case.read(format!("lines/{name}")) == case.read(format!("table/{name}")), "{name}");
    }
    case.distill("run", "--teacher-cache table --data likely.parquet --temperature 1 --steps 1").succeeds();
}

/// Lists vLLM's answer for 4 tokens of a vocabulary of 96: nothing of the first; of two likely ones with the token
/// itself beside them; of the token alone, of which another rank says nothing; of three, the token the third of them.
#[test]
fn prompt_logprobs_of_vllm_keep_the_tokens_whose_ranks_follow() {
    let mut case = Case::of_layers(1, 17 * 4);
    let token = |log_prob: f64, rank: u64| json!({"logprob": log_prob, "rank": rank, "decoded_token": "x"});
    let row = json!({"input_ids": [7, 50, 8, 9], "prompt_logprobs": [
        null,
        {"50": token(-6.5, 40), "3": token(-0.5, 1), "95": token(-1.5, 2)},
        {"8": token(-7.0, 60)},
        {"9": token(-2.0, 3), "4": token(-1.0, 1), "94": token(-1.25, 2)},
    ]});
    case.data = case.write("vllm.jsonl", row.to_string());
    let [made, said] = convert(&case, "cache", "--from vllm.jsonl --json").says();
    let made: Value = serde_json::from_str(&made).unwrap();
    // Of two numbers of tokens that are as frequent, the larger one is kept.
    let lacking =
        "note: 1 of 3 positions do not count: no tokens are listed there, or in prompt_logprobs none of rank 1";
    assert!(said.contains(lacking), "{said}");
    assert_eq!([&made["compact"]["keep_logits"], &made["rows"], &made["sequences"]], [3, 2, 1]);
    assert!(made["arch"].is_null() && made["kernels_sha256"].is_null(), "{made}");
    let rows = words(&case.read("cache/hidden.bin"));
    let [first, second] = [&rows[..7], &rows[7..]];
    assert_eq!([&first[..3], &second[..3]], [[3, 95, NO_TOKEN], [4, 94, 9]]);
    let rest = |known: &[f64]| (1.0 - known.iter().map(|log_prob| log_prob.exp()).sum::<f64>()).ln() as f32;
    let floats = |row: &[u32]| row[3..].iter().map(|bits| f32::from_bits(*bits)).collect::<Vec<_>>();
    assert_eq!(floats(first), [-0.5, -1.5, -100.0, rest(&[-0.5, -1.5])]);
    assert_eq!(floats(second), [-1.0, -1.25, -2.0, rest(&[-1.0, -1.25, -2.0])]);
    // Two of the three positions count, in a run of the same rows alone.
    for (beta, more) in [("0", ""), ("1", ""), ("0.5", "--eval-data vllm.jsonl")] {
        let words = ["--teacher-cache cache --temperature 1 --steps 1 --overwrite --beta", beta, more];
        case.distill("run", words).succeeds();
        let step = &case.metrics("run")[0];
        assert!(step.kd_loss.is_some_and(f64::is_finite) && step.grad_norm.is_some_and(f64::is_finite), "{beta}");
    }
    assert_eq!(case.record("run")["data"]["masked"], 1);
    case.write("bare.jsonl", json!({"input_ids": [7, 50, 8, 9]}).to_string());
    case.distill("bare", "--teacher-cache cache --temperature 1 --steps 1 --data bare.jsonl")
        .fails(5, "cache lacks sequence 1 of the training data");
    // Fewer are kept where that is asked for.
    let made = convert(&case, "one", "--from vllm.jsonl --keep-logits 1 --json").json();
    assert_eq!(made["hidden_bytes"], 2 * 12);
    let said = convert(&case, "none", "--from vllm.jsonl --dry-run").succeeds();
    assert!(said.contains("1 sequence, 2 tokens that count") && !case.has("none"), "{said}");
}

/// A position with fewer tokens than are kept has the loss and the gradient of those that it has.
#[test]
fn behind_fewer_tokens_comes_nothing_that_is_learnt() {
    let case = filled("");
    let lists = rows_of(&case, "own").into_iter().map(|row| {
        let likely = row.likely.into_iter().map(|tokens| tokens.into_iter().take(2).collect()).collect();
        Row { likely, ..row }.json().to_string() + "\n"
    });
    case.write("two.jsonl", lists.collect::<String>());
    for beta in ["0", "1", "0.5"] {
        let bits = |keep: &str| {
            let _ = fs::remove_dir_all(case.path("few"));
            convert(&case, "few", ["--from two.jsonl --keep-logits", keep]).succeeds();
            let words = "--teacher-cache few --steps 3 --overwrite --lr 1e-2 --precision fp32 --checkpoint-every 0";
            case.distill("run", [words, "--temperature 1 --data two.jsonl --beta", beta]).succeeds();
            case.bits("run")
        };
        assert!(bits("2") == bits("7"), "{beta}");
    }
}

/// vLLM lists one token more where the row's own is the next by rank: K are kept.
#[test]
fn as_many_tokens_are_kept_as_positions_usually_have() {
    let mut case = Case::of_layers(1, 17 * 4);
    let top = json!([null, [3, 95], [4, 94], [5, 93, 8]]);
    let log_probs = json!([null, [-0.5, -1.5], [-1.0, -1.25], [-1.0, -1.5, -2.0]]);
    let row = json!({"input_ids": [7, 50, 9, 8], "top_ids": top, "top_logprobs": log_probs}).to_string() + "\n";
    case.data = case.write("rows.jsonl", &row);
    let made = |out: &str, words: &str| {
        let [made, said] = convert(&case, out, ["--from rows.jsonl --json", words]).says();
        let keep = serde_json::from_str::<Value>(&made).unwrap()["compact"]["keep_logits"].as_u64();
        (keep, said.lines().filter(|line| line.starts_with("note: ")).collect::<Vec<_>>().join("\n"))
    };
    let cut = "note: the 2 likeliest of up to 3 tokens a position are kept".to_owned();
    assert_eq!(made("usual", ""), (Some(2), cut.clone()));
    let rows = words(&case.read("usual/hidden.bin"));
    assert_eq!(rows.chunks_exact(5).map(|row| [row[0], row[1]]).collect::<Vec<_>>(), [[3, 95], [4, 94], [5, 93]]);
    // More are kept where that is asked for.
    assert_eq!(made("asked", "--keep-logits 3"), (Some(3), String::new()));
    assert_eq!(made("one", "--keep-logits 1"), (Some(1), String::new()));
    // An equal row counts once.
    case.write("rows.jsonl", [&*row, &row].concat());
    assert_eq!(made("twice", ""), (Some(2), cut));
    assert!(case.read("twice/hidden.bin") == case.read("usual/hidden.bin"));
    // Another value refuses it, wherever the row is, and nothing is written.
    case.write("rows.jsonl", [&*row, &row, &row.replace("-1.25", "-1.125")].concat());
    let said = "rows.jsonl:3: the tokens of rows.jsonl:1, and other log-probabilities: leave one of both rows out";
    convert(&case, "other", "--from rows.jsonl").fails(5, said);
    assert!(!case.has("other"));
}

/// Chats and completions are tokenized as runs do.
#[test]
fn text_has_the_positions_of_its_tokens() {
    let case = case_of_words();
    case.write("text.jsonl", json!({"prompt": "the", "completion": " cat sat"}).to_string());
    let ids: Vec<u32> = list(&case.run("data --model student --json text.jsonl").json()["input_ids"]);
    let top: Vec<Value> = (0..ids.len()).map(|at| if at < 1 { Value::Null } else { json!([1, 2]) }).collect();
    let logs: Vec<Value> = (0..ids.len()).map(|at| if at < 1 { Value::Null } else { json!([-1.0, -1.5]) }).collect();
    let row = json!({"prompt": "the", "completion": " cat sat", "top_ids": top, "top_logprobs": logs});
    case.write("rows.jsonl", row.to_string());
    let made = convert(&case, "cache", "--from rows.jsonl --tokenizer student --json").json();
    assert_eq!(made["rows"], ids.len() as u64 - 1);
    case.distill("run", "--teacher-cache cache --data text.jsonl --temperature 1 --steps 1").succeeds();
}

#[test]
fn a_conversion_killed_at_any_change_to_the_disk_continues() {
    let case = filled("");
    let from = "--from likely.jsonl";
    convert(&case, "whole", from).succeeds();
    let whole = contents_of(&case, "whole");
    for at in 1.. {
        let _ = fs::remove_dir_all(case.path("cache"));
        if !is_killed_at(at, &mut convert(&case, "cache", from)) {
            return assert!(at > 15, "{at}");
        }
        let (code, _, message) = convert(&case, "cache", from).ends();
        assert!(code == Some(0) || message.contains("is a complete teacher cache"), "change {at}: {message}");
        assert!(contents_of(&case, "cache") == whole, "change {at}");
    }
}
