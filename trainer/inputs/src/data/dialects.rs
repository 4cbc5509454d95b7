//! Rows in the forms of other trainers, as messages or as prompt and completion.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::rows::{Content, Part};

/// A turn, in messages of errors.
const TURN: &str = r#"{"from": ..., "value": ...}"#;

/// Who speaks, and the role that templates know.
const ROLES: [(&str, &str); 7] = [
    ("human", "user"),
    ("user", "user"),
    ("gpt", "assistant"),
    ("assistant", "assistant"),
    ("model", "assistant"),
    ("system", "system"),
    ("tool", "tool"),
];

/// True if a list is of turns, by its first value.
pub(super) fn has_turns(list: &Value) -> bool {
    let first = list.get_item_by_index(0).unwrap_or_default();
    ["from", "value"].iter().all(|name| first.get_attr(name).is_ok_and(|value| !value.is_undefined()))
}

/// The messages of the turns in a column.
pub(super) fn messages(column: &str, turns: &Value) -> Result<Value, String> {
    if turns.kind() != ValueKind::Seq {
        return Err(format!("{column}: no list: expected a list of {TURN}"));
    }
    let turns = turns.try_iter().map_err(|error| format!("{column}: {error}"))?;
    turns.enumerate().map(|(index, turn)| message(&turn).map_err(|why| format!("{column}[{index}]: {why}"))).collect()
}

fn message(turn: &Value) -> Result<Value, String> {
    let get = |name: &str| {
        let value = turn.get_attr(name).ok().filter(|value| !value.is_none() && !value.is_undefined());
        let value =
            value.ok_or_else(|| format!("no {name}: expected {TURN}; --data-field names a column of messages"))?;
        match value.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("a {name} that is no text: expected {TURN}")),
        }
    };
    let (from, value) = (get("from")?, get("value")?);
    let Some((_, role)) = ROLES.iter().find(|(name, _)| *name == from) else {
        let names: Vec<&str> = ROLES.iter().map(|(name, _)| *name).collect();
        return Err(format!("from is {from:?}: expected one of {}", names.join(", ")));
    };
    // As TRL has it, templates see all else that a turn has.
    let is_other = |name: &Value| !matches!(name.as_str(), Some("from" | "value" | "role" | "content"));
    let others = turn.try_iter().into_iter().flatten().filter(is_other);
    let others = others.map(|name| (name.clone(), turn.get_item(&name).unwrap_or_default()));
    let said = [("role", Value::from(*role)), ("content", Value::from(value))];
    Ok(Value::from_pairs(said.map(|(name, value)| (Value::from(name), value)).into_iter().chain(others)))
}

/// Prompt and completion of an instruction. Source: `PROMPT_DICT` in train.py of github.com/tatsu-lab/stanford_alpaca
/// (761dc5b), with a line break behind the last heading: tokenizers that join `:` with the word behind it would else
/// begin the completion in the prompt's last token.
pub(super) fn instruction(instruction: &str, input: &str, output: String) -> Content {
    let (paired, input) = match input {
        "" => ("", String::new()),
        input => (", paired with an input that provides further context", format!("### Input:\n{input}\n\n")),
    };
    let prompt = format!(
        "Below is an instruction that describes a task{paired}. Write a response that appropriately completes the \
        request.\n\n### \
         Instruction:\n{instruction}\n\n{input}### Response:\n"
    );
    Content::Completion {
        prompt: Part::Text(prompt),
        completion: Part::Text(output),
        tools: None,
        teacher_prompt: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(json: &str) -> Result<String, String> {
        messages("conversations", &serde_json::from_str::<Value>(json).unwrap()).map(|list| list.to_string())
    }

    #[test]
    fn each_speaker_has_one_role() {
        let all = ROLES.map(|(from, _)| format!(r#"{{"from": "{from}", "value": "x"}}"#)).join(", ");
        let expected = ROLES.map(|(_, role)| format!("{{'role': '{role}', 'content': 'x'}}")).join(", ");
        assert_eq!(turns(&format!("[{all}]")), Ok(format!("[{expected}]")));
    }

    #[test]
    fn all_else_of_a_turn_comes_along() {
        let turn = r#"[{"weight": 0, "from": "gpt", "value": "x", "role": "y"}]"#;
        assert_eq!(turns(turn).unwrap(), "[{'role': 'assistant', 'content': 'x', 'weight': 0}]");
    }

    #[test]
    fn a_turn_that_is_none_is_named() {
        let second = [
            r#"{"from": "Human", "value": "x"}"#,
            r#"{"role": "user", "content": "x"}"#,
            r#"{"from": "gpt", "value": null}"#,
            r#"{"from": "gpt", "value": 7}"#,
        ];
        let lists = second.map(|turn| format!(r#"[{{"from": "human", "value": "x"}}, {turn}]"#));
        let faults: Vec<String> = lists.iter().map(|json| turns(json).unwrap_err()).collect();
        insta::assert_snapshot!(format!("{}\n{}", faults.join("\n"), turns(r#""text""#).unwrap_err()));
    }

    #[test]
    fn a_prompt_says_of_its_input_only_where_there_is_one() {
        let prompt = |input: &str| match instruction("Add.", input, "4".to_owned()) {
            Content::Completion { prompt: Part::Text(prompt), completion: Part::Text(output), .. } if output == "4" => {
                prompt
            }
            other => panic!("{other:?}"),
        };
        let paired = "Below is an instruction that describes a task, paired with an input that provides further \
            context. Write a response \
                      that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n2 and \
                      2\n\n### Response:\n";
        assert_eq!(prompt("2 and 2"), paired);
        let alone = "Below is an instruction that describes a task. Write a response that appropriately completes \
            the request.\n\n### \
                     Instruction:\nAdd.\n\n### Response:\n";
        assert_eq!(prompt(""), alone);
    }
}
