//! Conversations as a model reads them: its own chat template, rendered as transformers does, and which of the text its assistant
//! has said.

mod child;
mod json;
mod marks;
mod messages;
mod reasoned;
mod renderer;
mod source;
mod template;
mod turn_end;

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use chrono::NaiveDate;
use minijinja::Value;
use serde::{Deserialize, Serialize};

pub use child::{COMMAND, serve};
pub use renderer::ChatTemplate;
pub use source::{ChatSource, TOOL_USE, token, tokenizer_config};
pub use template::date;
pub use turn_end::TurnEnd;

use template::{Ending, Template};

/// A conversation as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    pub text: String,
    /// Bytes of it that the assistant has said, in order.
    pub spans: Vec<Range<usize>>,
}

/// The chat template that data are read by, or the sentence that says which model lacks one.
#[derive(Clone)]
pub enum Chat {
    Template(Arc<ChatTemplate>),
    Lacking(String),
}

impl Chat {
    /// Names the model that lacks a template.
    pub fn lacked_by(model: &Path) -> String {
        format!("the model {} has no chat template", model.display())
    }

    /// The template, if there is one.
    pub fn template(&self) -> Option<&Arc<ChatTemplate>> {
        if let Self::Template(template) = self { Some(template) } else { None }
    }
}

impl Default for Chat {
    fn default() -> Self {
        Self::Lacking("there is no chat template".to_owned())
    }
}

/// The templates of a model, in the process that renders by them.
struct Templates {
    default: Template,
    /// For conversations with tools; none where one template serves all.
    tool_use: Option<Template>,
}

impl Templates {
    /// Parses the templates of a model, as of a date.
    ///
    /// # Errors
    /// Why one of them does not parse.
    fn new(source: &ChatSource, date: Option<NaiveDate>) -> Result<Self, String> {
        let template = |text: &str| Template::new(text, &source.constants, date);
        let tool_use = source.tool_use.as_deref().map(template).transpose()?;
        Ok(Self { default: template(&source.default)?, tool_use })
    }

    /// A prompt, up to where the assistant goes on.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    fn prompt(&self, messages: &Value, tools: Option<&Value>) -> Result<String, String> {
        let messages = messages::read(messages, messages::Purpose::Prompt)?;
        let tools = tools.map(messages::tools).transpose()?;
        let template = self.tool_use.as_ref().filter(|_| tools.is_some()).unwrap_or(&self.default);
        Ok(template.render(&messages, tools.as_ref(), Ending::GenerationPrompt)?.0)
    }

    /// A conversation, and what the assistant has said in it: between the template's marks if it has any; else what rendering adds
    /// with each of its messages. Behind a prompt, of which nothing counts.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    fn conversation(
        &self,
        prompt: Option<&Value>,
        messages: &Value,
        tools: Option<&Value>,
    ) -> Result<Conversation, String> {
        let mut all =
            prompt.map_or_else(|| Ok(Vec::new()), |prompt| messages::read(prompt, messages::Purpose::Prompt))?;
        let of_prompt = all.len();
        all.extend(messages::read(messages, messages::Purpose::Learned)?);
        let tools = tools.map(messages::tools).transpose()?;
        self.render(&all, of_prompt, tools.as_ref())
    }

    /// Renders messages, of which those from `first` on count, unless they say that they do not.
    fn render(&self, messages: &[Value], first: usize, tools: Option<&Value>) -> Result<Conversation, String> {
        let template = self.tool_use.as_ref().filter(|_| tools.is_some()).unwrap_or(&self.default);
        let (text, mut spans) = template.render(messages, tools, Ending::Messages)?;
        let counts = |index: usize| messages::counts(&messages[index]) == Ok(true);
        if template.has_marks {
            let before = |end: usize| match end {
                0 => Ok(0),
                _ => template.render(&messages[..end], tools, Ending::Messages).map(|(_, spans)| spans.len()),
            };
            // From the last to the first, so that those before stay where they are.
            let silent = (first..messages.len()).rev().filter(|index| !counts(*index));
            for (start, end) in silent.map(|index| (index, index + 1)).chain([(0, first)]) {
                let range = before(start)?..before(end)?;
                if range.start > range.end || range.end > spans.len() {
                    return Err(no_prefix(start, messages.len()));
                }
                spans.drain(range);
            }
            if first > 0 {
                // Marks may enclose what the prompt ends with, which is given.
                let (prompt, _) = template.render(&messages[..first], tools, Ending::GenerationPrompt)?;
                let given = text.bytes().zip(prompt.bytes()).take_while(|(one, other)| one == other).count();
                spans.iter_mut().for_each(|span| span.start = span.start.max(given));
            }
            return Ok(Conversation { text, spans });
        }
        let learned = |index: &usize| messages::is_assistants(&messages[*index]) && counts(*index);
        for index in (first..messages.len()).filter(learned) {
            let before = match index {
                // Most templates render no conversation of nothing.
                0 => template.render(&[], tools, Ending::GenerationPrompt).map(|(text, _)| text).unwrap_or_default(),
                _ => template.render(&messages[..index], tools, Ending::GenerationPrompt)?.0,
            };
            let is_last = index + 1 == messages.len();
            let after = match is_last {
                true => text.clone(),
                false => template.render(&messages[..=index], tools, Ending::Messages)?.0,
            };
            if after.starts_with(&before) && text.starts_with(&after) {
                spans.push(before.len()..after.len());
                continue;
            }
            let is_only = is_last && spans.is_empty();
            let turn = if is_only { reasoned::last_turn(template, (messages, tools), &before, text)? } else { None };
            return turn.ok_or_else(|| no_prefix(index, messages.len()));
        }
        Ok(Conversation { text, spans })
    }
}

/// True if one of the messages is the assistant's.
pub fn has_assistant(messages: &Value) -> bool {
    messages.try_iter().is_ok_and(|mut all| all.any(|message| messages::is_assistants(&message)))
}

/// The error for a row that a template refuses, or fails at.
fn refused(reason: impl Display) -> String {
    format!("the chat template refuses the row: {reason}")
}

/// The error for one of so many messages, of which the assistant's part cannot be told.
fn no_prefix(index: usize, messages: usize) -> String {
    let rows =
        ", or rows of one turn each: `prompt`, the messages before it, and `completion`, the assistant's message";
    let rows = if index + 1 < messages { rows } else { "" };
    format!(
        "messages[{index}]: what the template renders of the messages before it is not how it renders all of them, so the assistant's \
         part cannot be told: give the template {{% generation %}} marks{rows}"
    )
}

#[cfg(test)]
mod tests;
