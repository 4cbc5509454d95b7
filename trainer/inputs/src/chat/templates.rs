//! The templates of a model, and which of the text that they render its assistant has said.

use minijinja::Value;

use super::template::{Ending, Template};
use super::{ChatSource, ChatVariables, Conversation, messages, reasoned};

/// The templates of a model, in the process that renders by them.
pub struct Templates {
    default: Template,
    /// For conversations with tools; none where one template serves all.
    tool_use: Option<Template>,
}

impl Templates {
    /// Parses the templates of a model, with a run's variables.
    ///
    /// # Errors
    /// Why one of them does not parse.
    pub fn new(source: &ChatSource, variables: ChatVariables) -> Result<Self, String> {
        let template = |text: &str| Template::new(text, &source.constants, variables);
        let tool_use = source.tool_use.as_deref().map(template).transpose()?;
        Ok(Self { default: template(&source.default)?, tool_use })
    }

    /// A prompt, up to where the assistant goes on.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn prompt(&self, messages: &Value, tools: Option<&Value>) -> Result<String, String> {
        let messages = messages::read(messages, messages::Purpose::Prompt)?;
        let tools = tools.map(messages::tools).transpose()?;
        let template = self.tool_use.as_ref().filter(|_| tools.is_some()).unwrap_or(&self.default);
        Ok(template.render(&messages, tools.as_ref(), Ending::GenerationPrompt)?.0)
    }

    /// A conversation, and what the assistant has said in it: between the template's marks if it has any; else what
    /// rendering adds with each of its messages. Behind a prompt, of which nothing counts.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn conversation(
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

/// The error for one of so many messages, of which the assistant's part cannot be told.
pub(super) fn no_prefix(index: usize, messages: usize) -> String {
    let rows =
        ", or rows of one turn each: `prompt`, the messages before it, and `completion`, the assistant's message";
    let rows = if index + 1 < messages { rows } else { "" };
    format!(
        "messages[{index}]: what the template renders of the messages before it is not how it renders all of them, \
        so the assistant's \
         part cannot be told: give the template {{% generation %}} marks{rows}"
    )
}
