//! The last message under a template whose prompts begin what a model thinks, as those of DeepSeek-R1-Distill and QwQ
//! do: it is not what rendering adds to a prompt.

use minijinja::Value;

use super::template::{Ending, Template};
use super::{Conversation, messages};

/// Begin and end of what a model thinks before it answers.
const THINKS: (&str, &str) = ("<think>", "</think>");
/// A noncharacter of Unicode, in place of the latter.
const HIDDEN: char = '\u{FDD2}';

/// Returns `text`, which the template renders of all messages, and what the last of them says in it, as TRL's training
/// templates have both: reasoning that the template drops stays, and all that rendering adds to the messages before
/// counts, but for a header that is a line. `prompt` is those messages rendered as a prompt. None of other templates
/// and messages.
pub(super) fn last_turn(
    template: &Template,
    (messages, tools): (&[Value], Option<&Value>),
    prompt: &str,
    mut text: String,
) -> Result<Option<Conversation>, String> {
    let render = |messages: &[Value]| template.render(messages, tools, Ending::Messages).map(|(text, _)| text);
    let Some((last, earlier)) = messages.split_last() else { return Ok(None) };
    let before = if earlier.is_empty() { String::new() } else { render(earlier)? };
    let added = prompt.strip_prefix(&*before).and_then(|added| added.split_once(THINKS.0));
    let Some((header, _)) = added else { return Ok(None) };
    let is_whole = |text: &str| text.strip_prefix(&*before).is_some_and(|added| added.contains(THINKS.1));
    let content = last.get_attr("content").unwrap_or_default();
    if let Some(said) = content.as_str().filter(|said| said.contains(THINKS.1) && !is_whole(&text)) {
        if messages.iter().any(|message| messages::has_any(message, [HIDDEN; 2])) {
            return Ok(None);
        }
        // The template looks for the end of the reasoning, and does not find it.
        let hidden = messages::with_content(last, &said.replace(THINKS.1, &HIDDEN.to_string()));
        text = render(&[earlier, &[hidden]].concat())?.replace(HIDDEN, THINKS.1);
    }
    let begins = text.starts_with(&format!("{before}{header}"));
    let start = before.len() + if header.ends_with('\n') { header.len() } else { 0 };
    let span = start..text.len();
    Ok(begins.then(|| Conversation { text, spans: Vec::from([span]) }))
}
