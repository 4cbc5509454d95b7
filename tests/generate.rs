//! `precast generate`: completions of a prompt and of many.

use crate::driver::{Machine, machine, sm_121};
use crate::support::launches;
use crate::support::prelude::*;

fn case() -> Case {
    let case = Case::new(0);
    case.write("student/tokenizer.json", tokenizer_of_words(WORDS).to_string());
    case
}

/// The answer to a prompt.
fn answer(case: &Case, prompt: &str, arguments: &str) -> Command {
    let mut command = case.run(["generate --json --model student", arguments]);
    command.args(["--prompt", prompt]);
    command
}

/// Completions of rows of data.
fn completes(case: &Case, data: &str, out: &str, arguments: &str) -> Command {
    case.run(format!("generate --model student --data {data} --out {out} {arguments}"))
}

fn rows(case: &Case, name: &str) -> Vec<Value> {
    case.text(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(json: &Value, name: &str) -> Vec<u32> {
    list(&json[name])
}

#[test]
fn a_prompt_is_a_message_under_a_template_and_an_end_ends() {
    let case = case();
    let template =
        "{% for m in messages %}<u> {{ m.content }} <e>{% endfor %}{% if add_generation_prompt %} <a>{% endif %}";
    case.write("student/chat_template.jinja", template);
    let run = |arguments: &str| answer(&case, "the cat", arguments).json();
    let (chat, raw) = (run("--max-tokens 5"), run("--max-tokens 5 --raw"));
    assert_eq!((ids(&chat, "prompt_ids").len(), ids(&raw, "prompt_ids").len()), (5, 2));
    // The second token that it says ends an answer now.
    let said = ids(&chat, "ids");
    let end = said[1];
    case.write("student/generation_config.json", json!({"eos_token_id": [95, end]}).to_string());
    let length = said.iter().position(|id| *id == end).unwrap() + 1;
    assert_eq!(ids(&run("--max-tokens 5"), "ids"), said[..length]);
    // As transformers has it: what config.json says ends nothing, unless nothing else is said.
    case.change("student/config.json", |config| config["eos_token_id"] = said[0].into());
    assert_eq!(ids(&run("--max-tokens 5"), "ids"), said[..length]);
    assert_eq!(ids(&run("--seq-len 7"), "ids"), said[..length.min(2)]);
    case.write("student/generation_config.json", "{}");
    assert_eq!(ids(&run("--max-tokens 5"), "ids"), said[..1]);
}

/// Standard output carries the text or the score, and nothing else.
#[test]
fn standard_output_has_the_text_or_the_score_alone() {
    let case = case();
    case.write("words.txt", WORDS);
    let mut generate = case.run("generate --model student --raw --max-tokens 3");
    let [text, heading] = generate.args(["--prompt", "the cat sat"]).says();
    let json = answer(&case, "the cat sat", "--raw --max-tokens 3").json();
    assert_eq!(text, format!("{}\n", json["text"].as_str().unwrap()));
    assert!(heading.contains("device   ") && heading.contains("model    "), "{heading}");
    let [score, heading] = case.run("eval --model student --untrained --data words.txt").says();
    assert!(score.starts_with("nll ") && score.lines().count() == 1, "{score}");
    assert!(heading.contains("device   ") && heading.contains("model    "), "{heading}");
}

/// No row of NaN has a likeliest token.
#[test]
fn a_model_whose_logits_are_no_numbers_generates_nothing() {
    let case = case();
    with_tensor(&case, &case.student, "broken", "model.layers.0.input_layernorm.weight", first_is_huge);
    let mut broken = answer(&case, "the cat", "--raw --model broken");
    let said = [
        "sequence 0 at position 2: a logit is not finite",
        "try --precision fp32, and check the model with precast eval",
    ];
    broken.fails(1, said);
    case.write("ids.jsonl", IDS);
    completes(&case, "ids.jsonl", "out.jsonl", "--group-size 2 --model broken")
        .fails(1, "sequence 0 at position 3: a logit is not finite");
    assert!(case.read("out.jsonl").is_empty());
}

/// All of the model's positions can be used, and no more.
#[test]
fn an_answer_ends_with_the_models_positions() {
    let case = case();
    let json = answer(&case, &"the ".repeat(62), "--raw --max-tokens 9").json();
    assert_eq!((ids(&json, "prompt_ids").len(), ids(&json, "ids").len()), (62, 2));
}

const IDS: &str = r#"{"input_ids": [1, 2, 3, 4, 5], "labels": [-100, -100, -100, 4, 5]}
{"input_ids": [7, 8], "labels": [-100, -100]}
"#;

/// Rows of every kind, with the tokens of each prompt.
const KINDS: [(&str, &str, [usize; 2]); 5] = [
    ("text.jsonl", r#"{"text": "the cat"} {"text": "sat on the mat"}"#, [2, 4]),
    ("prompt.jsonl", r#"{"prompt": "the cat sat"} {"prompt": [{"role": "user", "content": "on"}]}"#, [3, 4]),
    ("pairs.jsonl", r#"{"prompt": "the", "completion": "cat"} {"prompt": "sat on", "completion": ""}"#, [1, 2]),
    (
        "chats.jsonl",
        concat!(
            r#"{"messages": [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]} "#,
            r#"{"messages": [{"role": "user", "content": "on the mat again"}]}"#
        ),
        [5, 7],
    ),
    ("ids.jsonl", IDS, [3, 2]),
];

#[test]
fn each_kind_of_row_is_a_prompt_and_completions_are_data() {
    let case = case();
    case.write("student/chat_template.jinja", TEMPLATE);
    for (name, text, prompts) in KINDS {
        let out = format!("of-{name}");
        case.write(name, text.replace("} {", "}\n{"));
        completes(&case, name, &out, "--max-tokens 4").succeeds();
        let rows = rows(&case, &out);
        assert_eq!(rows.len(), 2, "{name}");
        for (row, prompt) in rows.iter().zip(prompts) {
            let labels: Vec<i64> = list(&row["labels"]);
            let masked = labels.iter().take_while(|label| **label == -100).count();
            assert_eq!((masked, labels.len()), (prompt, prompt + 4), "{name}: {row}");
            assert_eq!(ids(row, "input_ids").len(), labels.len());
        }
    }
    case.train("run", "--data of-chats.jsonl --steps 1 --precision fp32").succeeds();
    // What a directory has beside rows is left out, and said.
    fs::create_dir(case.path("inside")).unwrap();
    for (name, text) in [("ids.jsonl", IDS), ("README.md", "none of it"), ("empty.jsonl", "")] {
        case.write(&format!("inside/{name}"), text);
    }
    let [_, said] = completes(&case, "inside", "of-inside.jsonl", "--max-tokens 2").says();
    assert!(said.contains("README.md"), "{said}");
}

/// Sampled by temperature: neighbors, slots and interruptions change no byte.
#[test]
fn completions_do_not_depend_on_slots_groups_or_interruptions() {
    let case = case();
    let text: String = (0..9).map(|row| json!({"input_ids": [row, 2 * row + 1]}).to_string() + "\n").collect();
    case.write("prompts.jsonl", text);
    let how = "--max-tokens 40 --group-size 2 --seed 7 --top-k 50 --top-p 0.9";
    let bytes = |out: &str, more: &str| {
        completes(&case, "prompts.jsonl", out, &format!("{how} {more}")).succeeds();
        case.read(out)
    };
    let whole = bytes("whole.jsonl", "");
    let rows = rows(&case, "whole.jsonl");
    assert_eq!(rows.len(), 18);
    assert_ne!(rows[0]["input_ids"], rows[1]["input_ids"], "members of a group are draws of their own");
    assert_eq!(whole, bytes("one.jsonl", "--slots 1"));
    assert_eq!(whole, bytes("seven.jsonl", "--slots 7"));
    for kept in [0, whole.len() / 3, whole.len() - 1] {
        case.write("seven.jsonl", &whole[..kept]);
        assert_eq!(whole, bytes("seven.jsonl", "--resume"), "{kept}");
    }
    assert_ne!(whole, bytes("other.jsonl", "--seed 8"));
}

fn many(prompts: u32) -> Case {
    many_of(prompts, 64)
}

fn many_of(prompts: u32, positions: u32) -> Case {
    let config = tiny_config(&[("num_hidden_layers", 1.into()), ("max_position_embeddings", positions.into())]);
    let case = Case::of([&config, &config], 0);
    let ids = |row: u32| (0..=row % 8).map(|at| (7 * row + at) % 96).collect::<Vec<_>>();
    let rows = (0..prompts).map(|row| json!({"input_ids": ids(row)}).to_string() + "\n");
    case.write("prompts.jsonl", rows.collect::<String>());
    case
}

/// Killed at each change to the disk, from the first to the last, and continued.
#[test]
fn a_generation_continues_wherever_it_was_killed() {
    let case = many(5);
    let run =
        |out: &str, more: &str| completes(&case, "prompts.jsonl", out, &format!("--max-tokens 3 --slots 2 {more}"));
    run("whole.jsonl", "").succeeds();
    let whole = case.read("whole.jsonl");
    for at in 1.. {
        if !is_killed_at(at, &mut run("out.jsonl", "")) {
            return assert!(at > 8, "{at}");
        }
        let begun = case.has(".out.jsonl.header");
        run("out.jsonl", if begun { "--resume" } else { "" }).succeeds();
        assert!(case.read("out.jsonl") == whole, "change {at}");
        let left: Vec<String> =
            names_in(case.dir.path()).into_iter().filter(|name| name.contains("out.jsonl")).collect();
        assert_eq!(left, [".out.jsonl.header", "out.jsonl"], "change {at}");
        left.iter().for_each(|name| fs::remove_file(case.path(name)).unwrap());
    }
}

/// A generation on a machine of the test's own, whose kernels are their references.
fn on(machine: &Machine, case: &Case, arguments: &str) -> Command {
    let mut command = completes(case, "prompts.jsonl", "on.jsonl", &format!("--device cuda:0 {arguments}"));
    command.env("PRECAST_LIBCUDA_LOG", machine.path().join("log"));
    machine.computes(&mut command, &sm_121(machine.path()))
}

/// As the driver sees it, which poisons a context that loads late.
#[test]
fn nothing_is_loaded_or_allocated_once_a_token_is_computed() {
    skip_if!(has_driver() || lacks_compiler());
    let gb10 = machine(&[("PRECAST_FAKE_LOG_MEMORY", "1")]);
    let (case, how) = (many(70), "--max-tokens 34 --slots 65");
    on(&gb10, &case, how).succeeds();
    assert!(launches(&gb10.path().join("log")) > 34 * 2);
    completes(&case, "prompts.jsonl", "sim.jsonl", how).succeeds();
    assert!(case.read("on.jsonl") == case.read("sim.jsonl"));
}

#[test]
fn slots_that_do_not_fit_are_refused_with_the_most_that_do() {
    skip_if!(has_driver() || lacks_compiler());
    let card = machine(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "100")]);
    let case = many_of(9, 2048);
    let how = "--max-tokens 1500 --group-size 60";
    let said = [
        "512 slots of 1508 tokens do not fit; --slots 64 does: it needs ",
        " of device memory, up to 67108864 for kernels), and ",
        "keys and values",
    ];
    on(&card, &case, &format!("{how} --slots 512")).fails(4, said);
    assert!(!case.has("on.jsonl"));
    on(&card, &case, &format!("{how} --slots 64 --max-tokens 1")).succeeds();
}

#[test]
fn a_model_that_names_no_end_is_noted_once() {
    let case = case();
    case.write("ids.jsonl", IDS);
    let note = "names no token that ends a text: --max-tokens ends each completion";
    for mut command in [completes(&case, "ids.jsonl", "out.jsonl", "--max-tokens 1"), answer(&case, "the", "--raw")] {
        let (_, _, stderr) = command.ends();
        assert_eq!(stderr.matches(note).count(), 1, "{stderr}");
    }
}

/// A plan and a benchmark of generations take the memory that they take.
#[test]
fn a_generation_is_planned_and_measured() {
    let case = Case::new(0);
    let run = |name: &str, arguments: &str| case.run(format!("{name} generate --model student.json {arguments}"));
    let shape = "--slots 66 --prompt-tokens 3 --max-tokens 9";
    let mut plan = run("plan", "--slots 66 --seq-len 12 --json");
    let planned = plan.args(on_device()).json();
    let measured = run("bench", &format!("{shape} --out bench --json")).json();
    assert_eq!(planned["memory"], measured["memory"]["planned"]);
    assert_eq!(each::<u64>(&measured["steps"], "rows"), [8, 64, 66]);
    assert_eq!(measured["generation"]["new_tokens"], 66 * 9);
    let launches = each::<u64>(&measured["kernels"], "launches").iter().sum::<u64>();
    assert_eq!(launches, planned["steps"][1]["launches"].as_u64().unwrap());
    assert!(case.text("bench/report.html").contains("new tokens"));
    run("bench", shape).prints(["steps half-way through the slots", "keys and values"]);
}
