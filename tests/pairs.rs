//! Pairs that cannot teach are refused, and tokenizers are used for what they are.

use precast::inputs::added_tokens::AddedTokens;
use precast::inputs::checkpoint::Checkpoint;
use precast::inputs::data::{Chunk, Chunking, Corpus, Dataset, Files, Reader};
use precast::inputs::tokenizer::Tokenizer;
use precast_plan::Precision;
use precast_system::files::Existing;

use crate::support::prelude::*;
use crate::support::smollm2;

fn run(case: &Case) -> Command {
    case.distill("out", "--steps 1 --precision fp32 --checkpoint-every 0 --overwrite")
}

/// The message of a run that must fail, without the scratch directory's name.
fn refused(case: &Case, said: &str) -> String {
    let message = run(case).fails(5, said);
    assert!(!case.has("out"), "a refused run wrote something");
    case.anonymous(&message)
}

/// The notes of a run that must succeed, but for the one that its teacher has random weights.
fn notes(case: &Case) -> Vec<String> {
    let [_, stderr] = run(case).says();
    let stderr = without_trust(&stderr);
    let notes = stderr.lines().filter_map(|line| line.strip_prefix("note: "));
    notes.filter(|note| !note.starts_with("warning: the teacher predicts")).map(str::to_owned).collect()
}

fn tokenizers(case: &Case, teacher: &Value, student: &Value) {
    for (model, tokenizer) in [("teacher", teacher), ("student", student)] {
        case.write(&format!("{model}/tokenizer.json"), tokenizer.to_string());
    }
}

/// A BPE of the small letters, a space, a few merges and an end, 34 tokens in all; other characters are left out.
fn tokenizer(change: impl FnOnce(&mut Value)) -> Value {
    let mut vocab = json!({ "<|end|>": 0, " ": 1 });
    for (letter, id) in ('a'..='z').zip(2..) {
        vocab[letter.to_string()] = id.into();
    }
    for (token, id) in ["th", "the", "in", "an", "and", " the"].into_iter().zip(28..) {
        vocab[token] = id.into();
    }
    let mut tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null,
        "added_tokens": [added(0, "<|end|>")],
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab,
            "merges": [["t", "h"], ["th", "e"], ["i", "n"], ["a", "n"], ["an", "d"], [" ", "the"]],
        },
    });
    change(&mut tokenizer);
    tokenizer
}

fn added(id: u32, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
           "special": true})
}

#[test]
fn another_tokenizer_is_refused() {
    let case = Case::new(17 * 4);
    let ours = tokenizer(|_| {});
    let others = [
        tokenizer(|t| {
            t["model"]["vocab"]["x"] = 26.into();
            t["model"]["vocab"]["y"] = 25.into();
        }),
        tokenizer(|t| t["model"]["merges"].as_array_mut().unwrap().swap(2, 3)),
        tokenizer(|t| drop(t["model"]["merges"].as_array_mut().unwrap().remove(2))),
        tokenizer(|t| t["pre_tokenizer"] = json!({"type": "Whitespace"})),
        tokenizer(|t| {
            let id = t["model"]["vocab"].as_object_mut().unwrap().remove("z").unwrap();
            t["model"]["vocab"]["ž"] = id;
        }),
    ];
    let messages = others.map(|other| {
        tokenizers(&case, &ours, &other);
        refused(&case, "")
    });
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn tokens_that_one_model_has_alone_are_said() {
    let case = Case::new(17 * 4);
    let more = tokenizer(|t| t["added_tokens"].as_array_mut().unwrap().push(added(34, "<think>")));
    let renamed = tokenizer(|t| t["added_tokens"].as_array_mut().unwrap().push(added(34, "<|reserved|>")));
    tokenizers(&case, &more, &renamed);
    let expected =
        ["1 token only the teacher has: `<think>` (34)", "1 token only the student has: `<|reserved|>` (34)"];
    assert_eq!(notes(&case), expected);
    // The same tokenizer, spelled differently, is still the same one.
    let spelled = tokenizer(|t| t["model"]["merges"] = json!(["t h", "th e", "i n", "a n", "an d", "  the"][..5]));
    let short = tokenizer(|t| drop(t["model"]["merges"].as_array_mut().unwrap().pop()));
    tokenizers(&case, &spelled, &short);
    assert_eq!(notes(&case), [""; 0]);
}

#[test]
fn models_without_a_tokenizer_are_said() {
    let case = Case::new(17 * 4);
    let unchecked = "whether both models have the same ids is not checked";
    assert_eq!(notes(&case), ["neither model has a tokenizer: whether both have the same ids is not checked"]);
    case.write("teacher/tokenizer.json", tokenizer(|_| {}).to_string());
    assert_eq!(notes(&case), [format!("the student has no tokenizer: {unchecked}")]);
}

#[test]
fn a_truncated_vocabulary_is_said_with_both_numbers() {
    let mut case = Case::new(17 * 4);
    case.teacher = case.model("wide", 3, &[("vocab_size", 128.into())]);
    let said = "the teacher's vocabulary of 128 is truncated to the student's 96 before the softmax: \
                its predictions for the last 32 ids are ignored";
    assert_eq!(notes(&case)[1], said);
}

#[test]
fn a_student_larger_than_its_teacher_is_said() {
    let mut case = Case::new(17 * 4);
    case.student = case.model("deep", 3, &[("num_hidden_layers", 3.into())]);
    let [theirs, own] = [&case.teacher, &case.student]
        .map(|model| precast_plan::Parameters::new(Checkpoint::open(model).unwrap().config()).count());
    let said = format!("the student is larger than its teacher: {own} parameters, and {theirs}");
    assert!(own > theirs && notes(&case).contains(&said), "{own}, {theirs}");
    // The other way round there is nothing to say.
    std::mem::swap(&mut case.teacher, &mut case.student);
    assert!(!notes(&case).iter().any(|note| note.contains("larger")));
}

/// SmolLM2's GGUF file and the `tokenizer.json` that is made of it; and that GGUF against another family.
#[test]
fn a_gguf_file_and_its_own_tokenizer_json_go_together() {
    let Some(teacher) = smollm2() else { return };
    let dir = tempfile::tempdir().unwrap();
    let student = dir.path().join("student");
    precast::programs::init::from_layers(&teacher, &[0], Precision::Bf16, &student, Existing::Keep).unwrap();
    let teacher = Checkpoint::open(&teacher).unwrap();
    let check = || precast::inputs::pair::check(&teacher, &Checkpoint::open(&student).unwrap());
    assert_eq!(check().unwrap().notes, [""; 0]);

    let path = student.join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    json["pre_tokenizer"]["pretokenizers"].as_array_mut().unwrap().remove(0);
    fs::write(&path, json.to_string()).unwrap();
    let message = check().unwrap_err().to_string();
    assert!(message.contains("a text of") && !message.contains("other ids"), "{message}");
    fs::write(&path, tokenizer(|_| {}).to_string()).unwrap();
    let message = check().unwrap_err().to_string();
    assert!(message.contains("tokens with other ids") && message.len() < 2000, "{message}");
}

#[test]
fn a_student_that_is_its_teacher_is_refused() {
    let mut case = Case::new(17 * 4);
    // The same file, a copy, and the same values in another dtype from the same bytes.
    let copy = case.path("copy");
    precast::programs::init::from_layers(&case.student, &[0, 1], Precision::Fp32, &copy, Existing::Keep).unwrap();
    for teacher in [case.student.clone(), copy.clone()] {
        case.teacher = teacher;
        assert!(refused(&case, "hold the same weights").contains("--allow-identical"));
    }
    assert!(run(&case).with("--allow-identical").ends().0 == Some(0));
    assert_eq!(case.metrics("out")[0].kd_loss, Some(0.0));
    fs::remove_dir_all(case.path("out")).unwrap();
    // One weight of one matrix is another.
    let mut bytes = case.read("copy/model.safetensors");
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    case.write("copy/model.safetensors", bytes);
    notes(&case);
}

#[test]
fn a_document_is_ended_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.jsonl");
    fs::write(&text, "{\"text\": \"the in\"}\n\n{\"text\": \"and\"}\n").unwrap();
    let template = json!([{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|end|>", "type_id": 0}}]);
    let ends = tokenizer(|t| {
        t["post_processor"] = json!({
            "type": "TemplateProcessing", "single": template, "pair": template,
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}},
        });
    });
    for file in [tokenizer(|_| {}), ends] {
        let tokenizer = Tokenizer::new(dir.path(), || file.to_string().parse(), &AddedTokens::default()).unwrap();
        let reader = Reader { tokenizer: Some(tokenizer.into()), eos: Some(0), vocab: 96, ..Reader::default() };
        let files = Files::open(std::slice::from_ref(&text), None).unwrap();
        let dataset = Dataset::of(&Corpus::new(files, 7, Chunking::Stream, reader).unwrap()).unwrap();
        assert_eq!(dataset.chunks, [Chunk::plain([29, 1, 30, 0, 32, 0])]);
    }
}
