//! The token that ends an assistant's turn, and notes where no answer ends by it.

use std::ops::Range;
use std::sync::Arc;

use itertools::Itertools;
use minijinja::Value;

use super::{ChatTemplate, Conversation};
use crate::tokenizer::{SpecialTokens, Tokenizer};

/// The token that ends an assistant's turn.
pub struct TurnEnd {
    id: u32,
    pub text: String,
    /// True if the assistant says it.
    counts: bool,
}

impl TurnEnd {
    /// The token by which a template ends a turn; none where text ends it, and where the template refuses one turn.
    pub fn of(template: &Arc<ChatTemplate>, tokenizer: &Tokenizer) -> Option<Self> {
        let message = |role| Value::from_pairs([("role", role), ("content", "x")]);
        let turn = Value::from(vec![message("user"), message("assistant")]);
        let Conversation { text, spans } = template.conversation(None, &turn, None).ok()?;
        let (ids, places) = tokenizer.encode_placed(&text, SpecialTokens::Omit).ok()?;
        let Range { end, .. } = spans.last()?;
        let words = ids
            .into_iter()
            .zip(places)
            .filter(|(_, (from, to))| text.get(*from..*to).is_some_and(|text| !text.trim().is_empty()));
        let (said, behind): (Vec<_>, Vec<_>) = words.partition(|(_, (from, _))| from < end);
        let added = tokenizer.added();
        let end = |(id, _): (u32, _), counts| {
            let text = tokenizer.token(id).filter(|text| added.contains(text))?;
            Some(Self { id, text, counts })
        };
        let said = said.last().and_then(|last| end(*last, true));
        said.or_else(|| behind.first().and_then(|first| end(*first, false)))
    }

    /// Returns a note where a model does not stop at it, with what has it stop there, by default an edit of its files.
    pub fn note_of_stops(&self, stops: &[u32], tokenizer: &Tokenizer, remedy: Option<String>) -> Option<String> {
        let Self { id, text, .. } = self;
        let at = stops.iter().map(|stop| format!("`{}`", tokenizer.token(*stop).unwrap_or_default())).join(", ");
        let at = if at.is_empty() { "nothing" } else { &at };
        let all = stops.iter().chain([id]).join(", ");
        let edit = || format!("`\"eos_token_id\": [{all}]` in generation_config.json has it stop there");
        let remedy = remedy.unwrap_or_else(edit);
        let note = format!("the chat template ends an answer with `{text}`, and the model stops at {at}: {remedy}");
        (!stops.contains(id)).then_some(note)
    }

    /// Returns a note where a student does not learn it.
    pub fn note_of_learning(&self) -> Option<String> {
        let note = format!(
            "`{}`, with which the chat template ends an answer, does not count, so the student does not learn to end \
            one: enclose it in \
             the template's {{% generation %}} marks",
            self.text
        );
        (!self.counts).then_some(note)
    }
}
