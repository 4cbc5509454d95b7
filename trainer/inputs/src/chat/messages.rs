//! Messages as a template sees them.

use minijinja::Value;
use minijinja::value::ValueKind;

/// A message, in messages of errors.
const MESSAGE: &str = r#"{"role": ..., "content": ...}"#;
/// Older names of what a model thinks, the one that templates read first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Keys of a turn that say by 0 or false that it does not count.
const COUNTING: [&str; 3] = ["weight", "train", "loss"];

/// The part that messages play in a row of data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Prompt,
    /// Those of an assistant must say something.
    Learned,
}

/// Returns the messages of a list, each checked and completed as transformers does.
pub(super) fn read(messages: &Value, purpose: Purpose) -> Result<Vec<Value>, String> {
    let wrong = |reason: &str| format!("messages: {reason}: expected a list of {MESSAGE}");
    if messages.kind() != ValueKind::Seq {
        return Err(wrong("no list"));
    }
    let list: Vec<Value> = messages.try_iter().map_err(|error| wrong(&error.to_string()))?.collect();
    if list.is_empty() {
        return Err(wrong("an empty list"));
    }
    list.into_iter().enumerate().map(|(index, message)| complete(index, message, purpose)).collect()
}

fn complete(index: usize, message: Value, purpose: Purpose) -> Result<Value, String> {
    let wrong = |reason| format!("messages[{index}]: {reason}: expected {MESSAGE}");
    if message.kind() != ValueKind::Map {
        return Err(wrong("no object"));
    }
    let get = |name: &str| value_of(&message, name);
    let role = get("role").ok_or_else(|| wrong("no role"))?;
    if role.as_str().is_none() {
        return Err(wrong("a role that is no text"));
    }
    let learned = purpose == Purpose::Learned;
    let learned = learned && counts(&message).map_err(|reason| format!("messages[{index}]: {reason}"))?;
    let says = |name: &str| get(name).is_some_and(|value| value.is_true());
    let reasoning = REASONING.into_iter().find_map(get);
    if learned && is_assistants(&message) && reasoning.is_none() && !["content", "tool_calls"].into_iter().any(says) {
        let remedy = "remove the message or the row, or give it content or tool_calls";
        return Err(format!("messages[{index}]: the assistant says nothing: {remedy}"));
    }
    // As transformers has it: templates write a null as text, and know what to do where there is none.
    let names = message.try_iter().map_err(|_| wrong("no object"))?;
    let given = |name: Value| Some((message.get_item(&name).ok().filter(|value| !value.is_none())?, name));
    let mut all: Vec<(Value, Value)> = names.filter_map(given).map(|(value, name)| (name, value)).collect();
    let Some(reasoning) = reasoning else { return Ok(Value::from_pairs(all)) };
    if !all.iter().any(|(name, _)| name.as_str() == Some("thinking")) {
        all.insert(0, ("thinking".into(), reasoning.clone()));
    }
    match all.iter_mut().find(|(name, _)| name.as_str() == Some(REASONING[0])) {
        Some((_, value)) => *value = reasoning,
        None => all.push((REASONING[0].into(), reasoning)),
    }
    Ok(Value::from_pairs(all))
}

/// Returns the value that a message has under a name; none where that is null.
fn value_of(message: &Value, name: &str) -> Option<Value> {
    message.get_attr(name).ok().filter(|value| !value.is_none() && !value.is_undefined())
}

/// A message with another text.
pub(super) fn with_content(message: &Value, text: &str) -> Value {
    let names = message.try_iter().into_iter().flatten();
    Value::from_pairs(names.map(|name| match name.as_str() {
        Some("content") => (name, Value::from(text)),
        _ => (name.clone(), message.get_item(&name).unwrap_or_default()),
    }))
}

/// True unless a message says that it does not count.
///
/// # Errors
/// What says neither.
pub(super) fn counts(message: &Value) -> Result<bool, String> {
    COUNTING.into_iter().try_fold(true, |counts, name| match value_of(message, name) {
        None => Ok(counts),
        Some(value) if value.kind() == ValueKind::Bool || matches!(f64::try_from(value.clone()), Ok(0.0 | 1.0)) => {
            Ok(counts && value.is_true())
        }
        Some(value) => Err(format!("{name} is {value}: a turn counts or does not: expected 0, 1, true or false")),
    })
}

/// True if a key is read, by rows or by a template of these words. What a model thinks templates see under two names.
pub(super) fn is_read<'a>(key: &str, mut words: impl Iterator<Item = &'a str>) -> bool {
    let is_named = |word| word == key || (REASONING.contains(&key) && REASONING[..2].contains(&word));
    key == "role" || COUNTING.contains(&key) || words.any(is_named)
}

/// True if a message is the assistant's.
pub(super) fn is_assistants(message: &Value) -> bool {
    message.get_attr("role").is_ok_and(|role| role.as_str() == Some("assistant"))
}

/// Tools: a list, or its text.
pub(super) fn tools(tools: &Value) -> Result<Value, String> {
    let wrong = |reason: &str| format!("tools: {reason}: expected a list of JSON schemas, or its text");
    let list = match tools.as_str() {
        Some(text) => serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?,
        None => tools.clone(),
    };
    if list.kind() != ValueKind::Seq {
        return Err(wrong("no list"));
    }
    // Templates write a text of JSON as a text, which is learnt.
    match list.try_iter().ok().and_then(|mut all| all.position(|tool| tool.kind() != ValueKind::Map)) {
        Some(index) => Err(wrong(&format!("[{index}] is no object"))),
        None => Ok(list),
    }
}

/// True if any text in a value has one of these characters.
pub(super) fn has_any(value: &Value, characters: [char; 2]) -> bool {
    match value.kind() {
        ValueKind::String => value.as_str().is_some_and(|text| text.contains(characters)),
        ValueKind::Map => value.try_iter().is_ok_and(|mut names| {
            names.any(|name| {
                has_any(&name, characters) || value.get_item(&name).is_ok_and(|one| has_any(&one, characters))
            })
        }),
        ValueKind::Seq => value.try_iter().is_ok_and(|mut values| values.any(|one| has_any(&one, characters))),
        _ => false,
    }
}

/// True if one of the messages is the assistant's.
pub fn has_assistant(messages: &Value) -> bool {
    messages.try_iter().is_ok_and(|mut all| all.any(|message| is_assistants(&message)))
}
