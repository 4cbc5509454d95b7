//! Tokens that end documents, completions and answers: those that a model's files name, and `--stop-token`.

use precast::inputs::checkpoint::Checkpoint;

use crate::support::prelude::*;

/// A model whose tokenizer has its special tokens as real ones have them.
fn case() -> Case {
    let case = case_of_words();
    case.change("student/tokenizer.json", |json| {
        let token = |id: u32, text: &str| {
            json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false,
                   "special": true})
        };
        json["added_tokens"] = json!([token(0, "<a>"), token(1, "<e>"), token(2, "<u>")]);
    });
    case
}

/// A list of the configuration has the tokenizer's, or the first counts; where there is none, the tokenizer's does,
/// else another file's.
#[test]
fn documents_end_by_the_token_that_any_file_names() {
    let case = case();
    let ends = |own: Option<&str>, config: Value, generation: Value| {
        case.write("student/tokenizer_config.json", json!({ "eos_token": own }).to_string());
        case.write("student/generation_config.json", json!({ "eos_token_id": generation }).to_string());
        case.change("student/config.json", |json| json["eos_token_id"] = config);
        let model = Checkpoint::open(&case.student).unwrap();
        (model.eos_token().unwrap(), model.eos_tokens())
    };
    let none = Value::Null;
    assert_eq!(ends(None, none.clone(), none.clone()), (None, vec![]));
    assert_eq!(ends(Some("<e>"), none.clone(), none.clone()), (Some(1), vec![1]));
    assert_eq!(ends(Some("<e>"), none.clone(), json!([7, 8])), (Some(1), vec![7, 8]));
    assert_eq!(ends(None, none.clone(), json!([7, 8])), (Some(7), vec![7, 8]));
    assert_eq!(ends(Some("<e>"), json!([7, 1]), none.clone()), (Some(1), vec![7, 1]));
    assert_eq!(ends(Some("<e>"), json!([7, 8]), json!(9)), (Some(7), vec![9]));
    assert_eq!(ends(Some("<e>"), json!(7), none.clone()), (Some(7), vec![7]));
    let run = |out: &str| case.train(out, "--data tables/text.jsonl --precision fp32 --steps 1");
    ends(Some("<e>"), none.clone(), none.clone());
    run("ended").prints("ends     documents and completions with `<e>` (1)\n");
    ends(None, none.clone(), none);
    run("endless").prints("ends     documents and completions with nothing: no file of the model names an eos_token\n");
    assert_ne!(case.losses("ended"), case.losses("endless"));
}

#[test]
fn a_stop_token_is_written_with_the_student() {
    let case = case();
    case.write("student/generation_config.json", r#"{"eos_token_id": 7, "top_k": 5}"#);
    let run = |out: &str, more: &str| {
        case.train(out, ["--data tables/messages.jsonl --precision fp32 --seq-len 32 --steps 1", more])
    };
    let said = "note: the chat template ends an answer with `<e>`, and the model stops at `on`: ";
    let [_, notes] = run("plain", "").says();
    assert!(
        notes.contains(&format!("{said}--stop-token '<e>' has the student that is written stop there\n")),
        "{notes}"
    );
    let edit = format!("{said}`\"eos_token_id\": [7, 1]` in generation_config.json has it stop there\n");
    let [_, notes] = run("adapter", "--lora-rank 2").says();
    assert!(notes.contains(&edit), "{notes}");
    let [_, notes] = case.run("generate --model plain/student --max-tokens 2").with(["--prompt", "cat"]).says();
    assert!(notes.contains(&edit), "{notes}");
    let [_, notes] = run("ended", "--stop-token <e>").says();
    assert!(!notes.contains("stops at"), "{notes}");
    assert_eq!(case.json("ended/student/generation_config.json"), json!({"eos_token_id": [7, 1], "top_k": 5}));
    assert_eq!(case.json("plain/student/generation_config.json"), json!({"eos_token_id": 7, "top_k": 5}));
    run("unknown", "--stop-token <x>").fails(2, "--stop-token <x>: the student's tokenizer has no such token");
    run("of-adapter", "--stop-token <e> --lora-rank 2").fails(2, "--stop-token is written with a student");
}

/// A template for conversations with tools is written with the student, and read again.
#[test]
fn a_template_for_tools_stays_with_the_student() {
    let case = case();
    fs::create_dir(case.path("student/additional_chat_templates")).unwrap();
    case.write("student/additional_chat_templates/tool_use.jinja", format!("again {TEMPLATE}"));
    case.train("out", "--data tables/messages.jsonl --precision fp32 --steps 1").succeeds();
    let [was, is] = ["student", "out/student"]
        .map(|path| Checkpoint::open(&case.path(path)).unwrap().chat_source().unwrap().unwrap());
    assert_eq!((&was.default, &was.tool_use), (&is.default, &is.tool_use));
    assert!(was.tool_use.is_some());
}
