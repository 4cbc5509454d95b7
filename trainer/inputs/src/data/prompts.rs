//! Rows as prompts: what a model is to go on from.

use minijinja::Value;

use precast_kernels::abi::MASKED_TOKEN;

use super::corpus::Corpus;
use super::files::DataFile;
use super::opened::{Holds, Opened};
use super::pass::check_vocabulary;
use super::rows::{Columns, Content, Ids, Kind, Part, prompt_ids, sequence};
use super::source::{Row, RowPlace, Source, at_row};
use super::tokens::Tokens;
use super::{Chunk, Chunking, DataError, PromptRule};
use crate::tokenizer::{SpecialTokens, Tokenizer};

const NO_PROMPTS: &str = "no prompts in it; is it the right file?";

/// A prompt, and the row that it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub ids: Vec<u32>,
    /// Number of its file.
    file: usize,
    /// Number of its row, from 1; of a file without rows that of the prompt.
    row: u64,
}

impl Corpus {
    /// Reads the prompts of all files, in their order. Files without rows are divided into prompts of `tokens` tokens.
    /// A token of `stops` that a tokenizer puts behind a text is none of the prompt.
    ///
    /// # Errors
    /// [`DataError`] of a row that is no prompt of this model, and of a file without rows where `tokens` is not given.
    pub fn prompts(&self, tokens: Option<u32>, stops: &[u32]) -> Result<Vec<Prompt>, DataError> {
        let mut all: Vec<Prompt> = Vec::new();
        for (index, Opened { file, holds, .. }) in self.files.iter().enumerate() {
            let before = all.len();
            let prompt = |(row, ids): (u64, Vec<u32>)| Prompt { ids, file: index, row };
            match holds {
                Holds::Rows(None) => {}
                Holds::Rows(Some(columns)) => {
                    self.prompts_of_rows(file, (columns, stops), &mut |one| all.push(prompt(one)))?;
                }
                Holds::Ids | Holds::Document => {
                    let Some(tokens) = tokens else {
                        let reason = "has no rows: give --prompt-tokens N, which makes a prompt of each N tokens of it";
                        return Err(DataError::file(&file.path, reason));
                    };
                    let ids = self.ids_of(file, holds)?;
                    all.extend((1..).zip(ids.chunks_exact(tokens as usize).map(<[u32]>::to_vec)).map(prompt));
                }
            }
            // Of a directory, something is meant to be one.
            if all.len() == before && file.directory.is_none() {
                return Err(DataError::of(&file.path, NO_PROMPTS));
            }
        }
        match self.files.first().filter(|_| all.is_empty()) {
            Some(Opened { file, .. }) => Err(DataError::of(file.directory.as_ref().unwrap_or(&file.path), NO_PROMPTS)),
            None => Ok(all),
        }
    }

    /// The error for a prompt that cannot be used.
    pub fn unfit(&self, prompt: &Prompt, reason: String) -> DataError {
        at_row(&self.files[prompt.file].file, prompt.row, reason)
    }

    /// True if a file is without rows.
    pub fn has_documents(&self) -> bool {
        self.files.iter().any(|one| matches!(one.holds, Holds::Ids | Holds::Document))
    }

    /// All tokens of a file without rows.
    fn ids_of(&self, file: &DataFile, holds: &Holds) -> Result<Vec<u32>, DataError> {
        let ids = match holds {
            // None of its prompts ends where it does.
            Holds::Document => self.encode(&file.path, &file.text()?, SpecialTokens::Add)?,
            _ => file.ids(u64::MAX)?,
        };
        check_vocabulary(file, 0, &ids, self.reader.vocab)?;
        Ok(ids)
    }

    /// Reads a row as the chunking has it.
    pub(super) fn row(&self, row: Row<'_>) -> Result<Tokens, DataError> {
        match self.chunking {
            Chunking::Prompts(rule) if row.place.columns.kind != Kind::Text => self.prompt_row(row, rule),
            _ => self.read(row),
        }
    }

    /// A row's prompt, and its completion where there must be one.
    fn prompt_row(&self, row: Row<'_>, rule: PromptRule) -> Result<Tokens, DataError> {
        let (place, stops) = (row.place, self.reader.eos.as_slice());
        let ids = self.prompt(row.clone(), stops)?;
        let masked = vec![MASKED_TOKEN; ids.len()];
        let mut chunk = Chunk { labels: Some(masked), ids, teacher: self.teacher(&row)?, ..Chunk::default() };
        if let Some(teacher_prompt) = self.teacher_prompt(row.clone(), stops)? {
            chunk = chunk.after(teacher_prompt).map_err(|reason| place.fault(reason))?;
        }
        if rule.completed {
            let (ids, labels) = match self.text_completion(row.clone())? {
                Some(ids) => (ids.clone(), ids),
                None => {
                    let whole = self.read(row)?.chunk;
                    let labels = whole.labels.unwrap_or_else(|| whole.ids.clone());
                    let other =
                        "the template writes its prompt otherwise where an answer follows: no completion is behind it";
                    let ids = whole.ids.strip_prefix(&chunk.ids[..]).ok_or_else(|| place.fault(other))?;
                    (ids.to_vec(), labels[chunk.ids.len()..].to_vec())
                }
            };
            self.check(place, &ids)?;
            if labels.iter().all(|label| *label == MASKED_TOKEN) {
                let none = "no completion behind its prompt: --on-policy below 1 trains on those, too";
                return Err(place.fault(none));
            }
            chunk.ids.extend(ids);
            chunk.labels.iter_mut().for_each(|all| all.extend(&labels));
        }
        Ok(Tokens { chunk, ..Tokens::default() })
    }

    /// Returns the tokens of a completion that is text, with the one that ends it; none of other rows, and of an empty
    /// one.
    fn text_completion(&self, row: Row<'_>) -> Result<Option<Vec<u32>>, DataError> {
        let path = &row.place.file.path;
        let Ok((Content::Completion { prompt: Part::Text(_), completion: Part::Text(text), .. }, _)) = row.content()
        else {
            return Ok(None);
        };
        let mut ids = self.encode(path, &text, SpecialTokens::Omit)?;
        if !ids.is_empty() {
            ids.extend(self.reader.eos);
        }
        Ok(Some(ids))
    }

    fn prompts_of_rows(
        &self,
        file: &DataFile,
        (columns, stops): (&Columns, &[u32]),
        emit: &mut dyn FnMut((u64, Vec<u32>)),
    ) -> Result<(), DataError> {
        let mut source = Source::open(file, columns)?;
        loop {
            let group = source.group(|row| Ok((row.place.number, self.prompt(row, stops)?)));
            if group.is_empty() {
                return Ok(());
            }
            group.into_iter().try_for_each(|prompt| prompt.map(&mut *emit))?;
        }
    }

    /// The ids of a row's prompt: what is before the first token, or the last message, that an assistant would be
    /// trained to say.
    fn prompt(&self, row: Row<'_>, stops: &[u32]) -> Result<Vec<u32>, DataError> {
        let (place, (content, _)) = (row.place, row.content()?);
        let path = &place.file.path;
        let ids = match content {
            Content::Ids(ids) => {
                of_ids(Ids { teacher_prompt: None, ..ids }, self.reader.vocab).map_err(|reason| place.fault(reason))?
            }
            Content::Text(text) => {
                beginning(self.tokenizer(path)?, &text, stops).map_err(DataError::tokenizer(path))?
            }
            Content::Completion { prompt, tools, .. } | Content::Prompt { prompt, tools, .. } => {
                self.beginning_of(place, (&prompt, tools.as_ref()), stops)?
            }
            Content::Messages { messages, tools } => self.chat(place, &without_answer(&messages), tools.as_ref())?,
        };
        self.check(place, &ids)?;
        if ids.is_empty() {
            return Err(place.fault("a prompt of no tokens: there is nothing to go on from"));
        }
        Ok(ids)
    }

    /// The ids of the prompt that a row has for its teacher, if it has one.
    fn teacher_prompt(&self, row: Row<'_>, stops: &[u32]) -> Result<Option<Vec<u32>>, DataError> {
        let (place, (content, _)) = (row.place, row.content()?);
        let ids = match content {
            Content::Completion { teacher_prompt: Some(prompt), tools, .. }
            | Content::Prompt { teacher_prompt: Some(prompt), tools, .. } => {
                let ids = self.beginning_of(place, (&prompt, tools.as_ref()), stops)?;
                self.check(place, &ids)?;
                Some(ids)
            }
            Content::Ids(Ids { teacher_prompt: Some(prompt), .. }) => {
                Some(prompt_ids(prompt, self.reader.vocab).map_err(|reason| place.fault(reason))?)
            }
            _ => None,
        };
        Ok(ids)
    }

    fn beginning_of(
        &self,
        place: RowPlace<'_>,
        (prompt, tools): (&Part, Option<&Value>),
        stops: &[u32],
    ) -> Result<Vec<u32>, DataError> {
        let path = &place.file.path;
        match prompt {
            Part::Text(text) => beginning(self.tokenizer(path)?, text, stops).map_err(DataError::tokenizer(path)),
            Part::Messages(messages) => self.chat(place, messages, tools),
        }
    }

    fn chat(&self, place: RowPlace<'_>, messages: &Value, tools: Option<&Value>) -> Result<Vec<u32>, DataError> {
        let text = self.template(place)?.prompt(messages, tools).map_err(|reason| place.fault(reason))?;
        self.encode(&place.file.path, &text, SpecialTokens::Omit)
    }
}

impl PromptRule {
    /// Marks the prompt of a sequence of a stream, and drops its completion where that is the student's.
    pub(super) fn mark(self, chunk: &mut Chunk) {
        if chunk.labels.is_none() {
            let prompt = (self.of_stream.unwrap_or_default() as usize).min(chunk.ids.len());
            let masked = std::iter::repeat_n(MASKED_TOKEN, prompt);
            chunk.labels = Some(masked.chain(chunk.ids[prompt..].iter().copied()).collect());
        }
        if !self.completed {
            let prompt = chunk.prompt().len();
            chunk.truncate(prompt);
        }
    }
}

/// Returns the tokens of a text that goes on: without a stop that the tokenizer puts behind it, as some do.
///
/// # Errors
/// As [`Tokenizer::encode`].
pub fn beginning(tokenizer: &Tokenizer, text: &str, stops: &[u32]) -> Result<Vec<u32>, String> {
    let mut ids = tokenizer.encode(text, SpecialTokens::Add)?;
    let spelled = tokenizer.encode(text, SpecialTokens::Omit)?;
    if ids.last().is_some_and(|last| stops.contains(last)) && ids.last() != spelled.last() {
        ids.pop();
    }
    Ok(ids)
}

/// The tokens of a row before the first that counts; all of a row without labels.
fn of_ids(row: Ids, vocab: u32) -> Result<Vec<u32>, String> {
    let chunk = sequence(row, vocab)?;
    let counts = |label: &u32| *label != MASKED_TOKEN;
    let end = chunk.labels.and_then(|labels| labels.iter().position(counts));
    let mut ids = chunk.ids;
    ids.truncate(end.unwrap_or(ids.len()));
    Ok(ids)
}

/// Messages without the last one, if that is the assistant's.
fn without_answer(messages: &Value) -> Value {
    let mut list: Vec<Value> = messages.try_iter().map(Iterator::collect).unwrap_or_default();
    let role = list.last().and_then(|last| last.get_attr("role").ok());
    if role.is_some_and(|role| role.as_str() == Some("assistant")) {
        list.pop();
    }
    Value::from(list)
}
