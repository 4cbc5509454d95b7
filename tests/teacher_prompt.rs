//! A teacher that reads another prompt than the student: rows of any form, students that teach themselves, and one set
//! of bits however it is computed.

use crate::export::with_tokenizer;
use crate::support::prelude::*;

/// Two tiny models, of which the student ends texts by some tokens, and rows of ids: two of three have another prompt
/// for the teacher.
fn case() -> Case {
    let case = Case::new(17 * 8);
    case.write("student/generation_config.json", json!({"eos_token_id": [5, 9, 17]}).to_string());
    case.write("rows.jsonl", rows(|at, own| (at % 3 < 2).then(|| own.iter().rev().chain(&[7, 8]).copied().collect())));
    case
}

/// Rows of a ragged prompt and completion, and the teacher's prompt that follows from number and prompt.
fn rows(teacher_prompt: impl Fn(u32, &[u32]) -> Option<Vec<u32>>) -> String {
    let row = |at: u32| {
        let token = |token: u32| (7 * at + 13 * token * token + 3) % 96;
        let (prompt, length) = (1 + at * 5 % 4, 3 + at % 5);
        let ids: Vec<u32> = (0..prompt + length).map(token).collect();
        let counts = |at: usize| at >= prompt as usize;
        let labels: Vec<i64> =
            ids.iter().enumerate().map(|(at, id)| if counts(at) { (*id).into() } else { -100 }).collect();
        let mut row = json!({"input_ids": ids, "labels": labels});
        let own = teacher_prompt(at, &ids[..prompt as usize]);
        own.into_iter().for_each(|own| row["teacher_prompt"] = json!(own));
        format!("{row}\n")
    };
    (0..23).map(row).collect()
}

fn distill(case: &Case, out: &str, arguments: &str) -> Command {
    let given = "--overwrite --steps 3 --checkpoint-every 0 --lr 1e-2";
    let data = if arguments.contains("--data") { "" } else { "--data rows.jsonl" };
    case.distill(out, [given, data, arguments])
}

/// A teacher that is given the prompt once more changes no bit, and one that is given another does.
#[test]
fn a_teacher_that_is_given_the_same_prompt_has_the_same_bits() {
    let case = case();
    case.write("none.jsonl", rows(|_, _| None));
    case.write("same.jsonl", rows(|_, own| Some(own.to_vec())));
    for precision in ["fp32", "bf16", "int8"] {
        for packing in ["rows", "none"] {
            let of = |data: &str| {
                let arguments = format!("--packing {packing} --precision {precision} --data {data}.jsonl");
                distill(&case, data, &arguments).succeeds();
                case.bits(data)
            };
            let [none, same, rows] = ["none", "same", "rows"].map(of);
            assert!(none == same && none != rows, "{precision} {packing}");
        }
    }
}

/// Another model teaches, or the student itself, or its base.
#[test]
fn ranks_recomputing_and_continuing_give_one_set_of_weights() {
    skip_if!(is_on_gpu());
    let case = case();
    let teachers =
        ["--teacher teacher", "--teacher self", "--teacher self --lora-rank 2", "--teacher base --lora-rank 2"];
    for (teacher, precision) in teachers.into_iter().zip(["bf16", "fp32", "bf16", "int8"]) {
        let run = |out: &str, arguments: &str| {
            let common = "--replicas 4 --grad-accum 4 --steps 4";
            let given = format!("--overwrite --lr 1e-2 {common} --precision {precision} {teacher} --data rows.jsonl");
            case.distill(out, [&*given, arguments]).succeeds();
            case.bits(out)
        };
        let whole = run("whole", "--checkpoint-every 0");
        for (out, more) in [("two", "--gpus 2"), ("four", "--gpus 4"), ("norms", "--recompute norms")] {
            assert!(run(out, &format!("--checkpoint-every 0 {more}")) == whole, "{teacher} {more}");
        }
        let given =
            format!("--lr 1e-2 --replicas 4 --grad-accum 4 --precision {precision} {teacher} --data rows.jsonl");
        case.distill("parts", [&*given, "--overwrite --steps 2 --checkpoint-every 2"]).succeeds();
        case.distill("parts", [&*given, "--resume --steps 4 --checkpoint-every 2"]).succeeds();
        assert!(case.bits("parts") == whole, "{teacher}");
    }
    case.write("none.jsonl", rows(|_, _| None));
    distill(&case, "other", "--checkpoint-every 1").succeeds();
    let given = "--resume --steps 4 --checkpoint-every 1 --lr 1e-2 --data none.jsonl";
    let said = case.distill("other", given).fails(2, "is another run");
    assert!(said.contains("teacher prompts 1"), "{said}");
    distill(&case, "own", "--teacher self --checkpoint-every 1").succeeds();
    let given = "--resume --steps 4 --checkpoint-every 1 --lr 1e-2 --data rows.jsonl --teacher";
    let said = case.distill("own", [given, "student"]).fails(2, "is another run");
    assert!(said.contains("weights that teach"), "{said}");
}

/// The student's completions are scored as they were drawn, and the teacher reads them behind its own prompt.
#[test]
fn completions_are_compared_behind_either_prompt() {
    let case = case();
    case.write("none.jsonl", rows(|_, _| None));
    for (teacher, share) in [("teacher", "1"), ("self", "1"), ("teacher", "0.5")] {
        let run = |data: &str| {
            let given =
                "--precision bf16 --max-tokens 9 --seq-len 24 --grad-accum 4 --eval-data rows.jsonl --on-policy";
            distill(&case, data, &format!("{given} {share} --allow-identical --teacher {teacher} --data {data}.jsonl"))
        };
        run("rows").succeeds();
        let records = case.metrics("rows");
        assert!(records.iter().all(|record| record.rollouts.as_ref().unwrap().mismatch == 0));
        assert!(records.iter().all(|record| record.kd_loss > Some(1e-4)), "{teacher} {share}");
        if teacher == "teacher" {
            run("none").succeeds();
            let [own, same] = ["rows", "none"].map(|out| case.metrics(out)[0].kd_loss);
            assert_ne!(own, same, "{share}");
        }
    }
}

/// Texts and messages, as lines and as a table; a completion that either prompt leaves no room is cut for both.
#[test]
fn texts_and_messages_are_tokenized_behind_either_prompt() {
    let case = Case::empty();
    for (name, seed) in [("teacher", 1), ("student", 2)] {
        case.model(name, seed, &[("vocab_size", 300.into()), ("max_position_embeddings", 256.into())]);
        with_tokenizer(&case.path(name));
        let template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}\
            {% if add_generation_prompt %}<assistant>{% endif %}";
        case.write(&format!("{name}/chat_template.jinja"), template);
    }
    let user = |content: &str| json!([{"role": "user", "content": content}]);
    let answer = json!([{"role": "assistant", "content": "85"}]);
    let rows = [
        json!({"prompt": "37 + 48 = ", "completion": "85", "teacher_prompt": "It is 85. 37 + 48 = "}),
        json!({"prompt": user("37 + 48"), "completion": answer, "teacher_prompt": user("37 + 48, which is 85")}),
    ];
    let mut first = Vec::new();
    for (name, row) in ["text", "chat"].into_iter().zip(&rows) {
        case.write("one.jsonl", row.to_string());
        case.run("data one.jsonl --model student").prints(["\nteacher_prompt:\n"]);
        let mut without = row.clone();
        without.as_object_mut().unwrap().remove("teacher_prompt");
        case.write(&format!("{name}.jsonl"), format!("{row}\n").repeat(4));
        case.write(&format!("{name}.none.jsonl"), format!("{without}\n").repeat(4));
        let loss = |data: &str, more: &str| {
            distill(&case, "out", &format!("--packing none --seq-len 64 --steps 1 --data {data}.jsonl {more}"))
                .succeeds();
            let record = case.metrics("out").remove(0);
            (record.kd_loss, record.ce_loss, record.tokens)
        };
        let [own, none] = [name.to_owned(), format!("{name}.none")].map(|data| loss(&data, ""));
        assert!(own.0 != none.0 && own.1 == none.1 && own.2 == none.2, "{name}: {own:?} {none:?}");
        // One token of the completion has room behind the teacher's prompt.
        let teacher = row["teacher_prompt"].to_string().len() as u64;
        let cut = (4..teacher + 40).find_map(|seq_len| {
            let mut run = distill(&case, "out", &format!("--seq-len {seq_len} --steps 1 --data {name}.jsonl"));
            let is_reached = run.output().unwrap().status.success();
            is_reached.then(|| (seq_len, case.metrics("out")[0].tokens))
        });
        first.push(cut.expect("a length that reaches the completion"));
        let (seq_len, tokens) = first[first.len() - 1];
        assert!(tokens > 0 && tokens < own.2, "{name} at {seq_len}: {tokens} of {}", own.2);
    }
    let other = json!({"prompt": "37 + 48 =", "completion": " 85", "teacher_prompt": user("37 + 48")});
    case.write("other.jsonl", other.to_string());
    distill(&case, "out", "--seq-len 64 --data other.jsonl").fails(5, "teacher_prompt and completion: one is text");
}

#[test]
fn what_cannot_be_compared_is_refused_by_name() {
    let case = case();
    let fails = |arguments: &str, code: i32, says: &str| distill(&case, "out", arguments).fails(code, says);
    case.write("none.jsonl", rows(|_, _| None));
    fails("--teacher self --data none.jsonl", 5, "none.jsonl has no teacher_prompt");
    fails("--teacher self --teacher-format int8", 2, "--teacher-format cannot be combined with --teacher self");
    fails("--teacher self --teacher-format stored", 2, "--teacher-format cannot be combined with --teacher self");
    fails("--teacher self --teacher-cache c", 2, "--teacher self teaches by the weights of the run");
    fails("--teacher base", 2, "--teacher base is the frozen model of an adapter");
    case.write("empty.jsonl", rows(|_, _| Some(Vec::new())));
    fails("--data empty.jsonl", 5, "empty.jsonl:1: teacher_prompt: it has no tokens");
    case.write("far.jsonl", rows(|_, _| Some(vec![96])));
    fails("--data far.jsonl", 5, "teacher_prompt[0] is 96, and the model's vocabulary is 0 to 95");
    case.write("late.jsonl", rows(|at, own| (at == 2).then(|| own.to_vec())));
    fails("--data late.jsonl", 5, "late.jsonl:3: teacher_prompt: the first row has none");
    let cache = |data: &str| case.run(["cache --teacher teacher --seq-len 16 --out cache --data", data]);
    cache("rows.jsonl").fails(5, "rows.jsonl has teacher_prompt, and a cache holds");
    cache("none.jsonl").succeeds();
    fails("--teacher-cache cache", 5, "rows.jsonl has teacher_prompt, and a cache holds");
    // Nobody reads it who has no teacher, which is said.
    let given = "--overwrite --steps 1 --data rows.jsonl";
    let [_, said] = case.train("alone", given).says();
    assert!(said.contains("teacher_prompt"), "{said}");
    assert!(!case.has("out"));
}

/// A student that teaches itself has no second copy of its weights.
#[test]
fn a_student_that_teaches_itself_is_in_memory_once() {
    let case = case();
    let bytes = |teacher: &str| {
        let line = [
            "plan --json --device sim --batch-size 2 --seq-len 16 --student student --data rows.jsonl --teacher",
            teacher,
        ];
        let said = case.run(line).says()[0].clone();
        let json: Value = serde_json::from_str(&said).unwrap();
        let rows = json["memory"]["rows"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|row| row["category"] == name)?["bytes"].as_u64();
        (row("teacher_weights"), row("student_weights"), row("master_weights"))
    };
    let (of_teacher, own, masters) = bytes("teacher");
    assert!(of_teacher > Some(0));
    assert_eq!(bytes("self"), (None, own, masters));
    // A plan of an on-policy run counts the teacher's sequences, too.
    case.write("none.jsonl", rows(|_, _| None));
    let inputs = |data: &str| {
        let line =
            "plan --json --device sim --batch-size 2 --seq-len 24 --student student --teacher teacher --on-policy";
        let json: Value = case.run([line, "--max-tokens 9 --data", data]).json();
        json["memory"]["total_bytes"].as_u64().unwrap()
    };
    assert!(inputs("rows.jsonl") > inputs("none.jsonl"));
}
