//! Rows to tokens, and which of them count.

use std::ops::Range;
use std::path::Path;

use minijinja::Value;
use precast_kernels::abi::MASKED_TOKEN;

use super::corpus::{Corpus, no_template};
use super::likely::LikelyTokens;
use super::rows::{Content, PROMPTS, Part, TEACHER_PROMPT, check_ids, sequence};
use super::source::{Row, RowPlace};
use super::{Chunk, DataError};
use crate::chat::{Chat, ChatTemplate, has_assistant};
use crate::tokenizer::SpecialTokens;

type PlacedIds = (Vec<u32>, Vec<(usize, usize)>);

/// What a row comes to.
#[derive(Default)]
pub(super) struct Tokens {
    pub chunk: Chunk,
    /// A document, which becomes chunks of its own or of a stream; else a sequence.
    pub is_document: bool,
    /// It is a text without a character.
    pub is_empty: bool,
    /// It is messages, none of them the assistant's.
    pub lacks_assistant: bool,
    /// Fields of it that are null are left out.
    pub lacks_nulls: bool,
    /// Likely tokens of each position, where they are read, too.
    pub likely: Vec<LikelyTokens>,
    /// Positions that do not count for lack of them alone.
    pub lacking: Vec<usize>,
}

impl Tokens {
    /// Has the positions count of which something is known.
    pub fn know(&mut self, likely: Vec<LikelyTokens>) {
        if likely.iter().skip(1).any(Option::is_none) {
            let labels = self.chunk.labels.get_or_insert_with(|| self.chunk.ids.clone());
            for (at, (label, known)) in labels.iter_mut().zip(&likely).enumerate().skip(1) {
                if known.is_none() && *label != MASKED_TOKEN {
                    *label = MASKED_TOKEN;
                    self.lacking.push(at);
                }
            }
        }
        self.likely = likely;
    }
}

impl Corpus {
    /// Returns the tokens of a row, with those that are likely where they are read, too.
    pub(super) fn read(&self, row: Row<'_>) -> Result<Tokens, DataError> {
        let (place, listed, teacher) = (row.place, row.likely()?, self.teacher(&row)?);
        let mut tokens = self.tokens(row)?;
        tokens.chunk.teacher = teacher;
        if let Some(listed) = listed {
            let likely = listed.positions(tokens.chunk.ids.len(), self.reader.vocab);
            tokens.know(likely.map_err(|error| place.fault(error))?);
        }
        Ok(tokens)
    }

    /// Returns the number of the teacher that a row names: 0 where its file has one.
    pub(super) fn teacher(&self, row: &Row<'_>) -> Result<u32, DataError> {
        if row.place.columns.names_teachers { row.teacher(&self.teachers) } else { Ok(0) }
    }

    fn tokens(&self, row: Row<'_>) -> Result<Tokens, DataError> {
        let (place, (content, lacks_nulls)) = (row.place, row.content()?);
        let sequence_of = |chunk, is_empty| Tokens { chunk, is_empty, lacks_nulls, ..Tokens::default() };
        let (messages, tools) = match content {
            Content::Ids(ids) => {
                let chunk = sequence(ids, self.reader.vocab).map_err(|reason| place.fault(reason))?;
                return Ok(sequence_of(chunk, false));
            }
            Content::Text(text) => {
                let chunk = Chunk::plain(self.document(&place.file.path, &text)?);
                return Ok(Tokens { is_document: true, ..sequence_of(chunk, text.is_empty()) });
            }
            Content::Completion { prompt, completion, tools, teacher_prompt } => {
                let is_empty = matches!(&completion, Part::Text(text) if text.is_empty());
                let of = |name, prompt: &Part| match (prompt, &completion) {
                    (Part::Text(prompt), Part::Text(completion)) => self.completed(place, prompt, completion),
                    (Part::Messages(prompt), Part::Messages(completion)) => {
                        self.conversation(place, (Some(prompt), completion), tools.as_ref())
                    }
                    _ => {
                        let reason = "one is text and the other messages: give both as text or both as messages";
                        Err(place.fault(format_args!("{name} and completion: {reason}")))
                    }
                };
                let chunk = of("prompt", &prompt)?;
                let teacher = teacher_prompt.map(|prompt| of(TEACHER_PROMPT, &prompt)).transpose()?;
                let taught = |teacher| chunk.clone().taught_by(teacher).map_err(|reason| place.fault(reason));
                let chunk = teacher.map(taught).transpose()?.unwrap_or(chunk);
                let lacks_assistant = matches!(&completion, Part::Messages(messages) if !has_assistant(messages));
                return Ok(Tokens { lacks_assistant, ..sequence_of(chunk, is_empty) });
            }
            Content::Prompt { .. } => return Err(place.fault(PROMPTS)),
            Content::Messages { messages, tools } => (messages, tools),
        };
        let chunk = self.conversation(place, (None, &messages), tools.as_ref())?;
        Ok(Tokens { lacks_assistant: !has_assistant(&messages), ..sequence_of(chunk, false) })
    }

    /// Returns the tokens of messages, behind those of a prompt.
    fn conversation(
        &self,
        place: RowPlace<'_>,
        (prompt, messages): (Option<&Value>, &Value),
        tools: Option<&Value>,
    ) -> Result<Chunk, DataError> {
        let conversation = self.template(place)?.conversation(prompt, messages, tools);
        let conversation = conversation.map_err(|reason| place.fault(reason))?;
        let (ids, offsets) = self.placed(place, &conversation.text, SpecialTokens::Omit)?;
        self.check(place, &ids)?;
        Ok(labeled(ids, &offsets, &conversation.spans))
    }

    /// Returns the tokens of a prompt and its completion, which is ended once and counts.
    fn completed(&self, place: RowPlace<'_>, prompt: &str, completion: &str) -> Result<Chunk, DataError> {
        let text = format!("{prompt}{completion}");
        let (ids, offsets) = self.placed(place, &text, SpecialTokens::Add)?;
        let mut chunk = labeled(ids, &offsets, std::slice::from_ref(&(prompt.len()..text.len())));
        if let Some(eos) = self.reader.eos {
            // Some tokenizers end texts themselves, by a token that stands for none of it.
            if chunk.ids.last() == Some(&eos) && offsets.last().is_some_and(|(start, end)| start == end) {
                chunk.labels.iter_mut().for_each(|labels| _ = labels.pop());
            } else if chunk.ids.last() != Some(&eos) {
                chunk.ids.push(eos);
            }
            chunk.labels.iter_mut().for_each(|labels| labels.resize(chunk.ids.len(), eos));
        }
        self.check(place, &chunk.ids)?;
        Ok(chunk)
    }

    /// Returns the tokens of a text, and the bytes of it that each stands for.
    fn placed(&self, place: RowPlace<'_>, text: &str, special: SpecialTokens) -> Result<PlacedIds, DataError> {
        let path = &place.file.path;
        self.tokenizer(path)?.encode_placed(text, special).map_err(DataError::tokenizer(path))
    }

    /// Refuses a row with a token that is not the student's.
    pub(super) fn check(&self, place: RowPlace<'_>, ids: &[u32]) -> Result<(), DataError> {
        let ids = ids.iter().map(|id| i64::from(*id));
        check_ids(ids, self.reader.vocab).map_err(|reason| place.fault(reason))
    }

    /// Returns the template that renders messages.
    pub(super) fn template(&self, place: RowPlace<'_>) -> Result<&ChatTemplate, DataError> {
        match &self.reader.chat {
            Chat::Template(template) => Ok(template),
            Chat::Lacking(lacks) => Err(no_template(&place.file.path, place.columns.kind, lacks)),
        }
    }

    /// Returns the ids of a document, ended once: some tokenizers end it themselves.
    pub(super) fn document(&self, path: &Path, text: &str) -> Result<Vec<u32>, DataError> {
        let mut ids = self.encode(path, text, SpecialTokens::Add)?;
        ids.extend(self.reader.eos.filter(|eos| ids.last() != Some(eos)));
        Ok(ids)
    }

    pub(super) fn encode(&self, path: &Path, text: &str, special: SpecialTokens) -> Result<Vec<u32>, DataError> {
        self.tokenizer(path)?.encode(text, special).map_err(DataError::tokenizer(path))
    }
}

/// Tokens of a text of which those that overlap spans of it count, as transformers has them since 5.24: the tokens of a
/// character all have its bytes.
fn labeled(ids: Vec<u32>, offsets: &[(usize, usize)], spans: &[Range<usize>]) -> Chunk {
    let mut spans = spans.iter().filter(|span| !span.is_empty()).peekable();
    let mut counts = |(start, end): (usize, usize)| {
        while spans.next_if(|span| span.end <= start).is_some() {}
        spans.peek().is_some_and(|span| span.start < end)
    };
    let label = |(id, place): (&u32, &(usize, usize))| if counts(*place) { *id } else { MASKED_TOKEN };
    let labels = ids.iter().zip(offsets).map(label).collect();
    Chunk { ids, labels: Some(labels), ..Chunk::default() }
}
