//! `precast generate`: greedy, by the model's chat template or without.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::success::planted;
use crate::support::{Case, fail, logits, on_device, precast, succeed, texts, tokenizer};

const TEXT: &str = "again and cat mat on sat the <u> <a> <e>";

fn case() -> Case {
    let case = Case::new(0);
    let mut words = tokenizer(TEXT);
    words["pre_tokenizer"] = serde_json::json!({"type": "WhitespaceSplit"});
    fs::write(case.student.join("tokenizer.json"), words.to_string()).unwrap();
    case
}

impl Case {
    fn generate(&self, prompt: &str, arguments: &[&str]) -> Command {
        let mut command = precast();
        command.args(["generate", "--json", "--prompt", prompt, "--model"]).arg(&self.student);
        command.args(on_device()).args(arguments);
        command
    }
}

fn ids(json: &Value, name: &str) -> Vec<u32> {
    json[name].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Each token is the likeliest by the logits of everything before it.
#[test]
fn every_token_is_the_likeliest_after_those_before() {
    let case = case();
    let json: Value =
        serde_json::from_str(&succeed(&mut case.generate("the cat sat", &["--raw", "--max-tokens", "9"]))).unwrap();
    let (mut sequence, found) = (ids(&json, "prompt_ids"), ids(&json, "ids"));
    assert_eq!((sequence.len(), found.len()), (3, 9));
    for next in found {
        let logits = logits(&case.student, &sequence);
        let last = &logits[logits.len() - 96..];
        let best = (0..96).max_by(|a, b| last[*a].total_cmp(&last[*b]).then(b.cmp(a))).unwrap();
        assert_eq!(next as usize, best, "after {sequence:?}");
        sequence.push(next);
    }
}

#[test]
fn a_prompt_is_a_message_where_the_model_has_a_template_and_an_end_ends() {
    let case = case();
    fs::write(
        case.student.join("chat_template.jinja"),
        "{% for m in messages %}<u> {{ m.content }} <e>{% endfor %}{% if add_generation_prompt %} <a>{% endif %}",
    )
    .unwrap();
    let run = |arguments: &[&str]| -> Value {
        serde_json::from_str(&succeed(&mut case.generate("the cat", arguments))).unwrap()
    };
    let (chat, raw) = (run(&["--max-tokens", "5"]), run(&["--max-tokens", "5", "--raw"]));
    assert_eq!((ids(&chat, "prompt_ids").len(), ids(&raw, "prompt_ids").len()), (5, 2));
    // The second token that it says ends an answer now.
    let said = ids(&chat, "ids");
    let end = said[1];
    fs::write(case.student.join("generation_config.json"), format!("{{\"eos_token_id\": [95, {end}]}}")).unwrap();
    let ended = ids(&run(&["--max-tokens", "5"]), "ids");
    let length = said.iter().position(|id| *id == end).unwrap() + 1;
    assert_eq!(ended, said[..length]);
}

/// Standard output carries the text or the score, and nothing else.
#[test]
fn standard_output_has_the_text_or_the_score_alone() {
    let case = case();
    fs::write(case.path("words.txt"), TEXT).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = precast();
        command.args(arguments).arg("--model").arg(&case.student).args(on_device());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        texts(&output)
    };
    let (text, heading) = run(&["generate", "--raw", "--prompt", "the cat sat", "--max-tokens", "3"]);
    let json: Value =
        serde_json::from_str(&succeed(&mut case.generate("the cat sat", &["--raw", "--max-tokens", "3"]))).unwrap();
    assert_eq!(text, format!("{}\n", json["text"].as_str().unwrap()));
    assert!(heading.contains("device   ") && heading.contains("model    "), "{heading}");
    let words = case.path("words.txt").display().to_string();
    let (score, heading) = run(&["eval", "--untrained", "--data", &words]);
    assert!(score.starts_with("nll ") && score.lines().count() == 1, "{score}");
    assert!(heading.contains("device   ") && heading.contains("model    "), "{heading}");
}

/// No row of NaN has a likeliest token.
#[test]
fn a_model_whose_logits_are_no_numbers_generates_nothing() {
    let mut case = case();
    let tensor = "model.layers.0.input_layernorm.weight";
    let broken = planted(case.dir.path(), &case.student, "broken", tensor, 0, f32::MAX);
    fs::copy(case.student.join("tokenizer.json"), broken.join("tokenizer.json")).unwrap();
    case.student = broken;
    let message = fail(&mut case.generate("the cat", &["--raw"]), 1);
    assert!(message.contains("broken: after 2 tokens the logit of token 0 is NaN"), "{message}");
    assert!(message.contains("try --precision fp32, and check the model with precast eval"), "{message}");
}

/// All of the model's positions can be used, and no more.
#[test]
fn an_answer_ends_with_the_models_positions() {
    let case = case();
    let json: Value =
        serde_json::from_str(&succeed(&mut case.generate(&"the ".repeat(62), &["--raw", "--max-tokens", "9"])))
            .unwrap();
    assert_eq!((ids(&json, "prompt_ids").len(), ids(&json, "ids").len()), (62, 2));
    let message = fail(&mut case.generate(&"the ".repeat(64), &["--raw", "--max-tokens", "1"]), 2);
    assert!(message.contains("--prompt is 64 tokens, and the model takes 64 with its answer: shorten it"), "{message}");
}

#[test]
fn a_prompt_that_cannot_be_read_is_refused() {
    let case = case();
    let long = "the ".repeat(70);
    assert!(fail(&mut case.generate(&long, &["--raw"]), 2).contains("--prompt is 70 tokens, and the model takes 64"));
    assert!(fail(&mut case.generate("", &["--raw"]), 2).contains("--prompt has no token to go on from"));
    fs::remove_file(case.student.join("tokenizer.json")).unwrap();
    assert!(fail(&mut case.generate("the", &["--raw"]), 5).contains("has no tokenizer.json"));
}
