//! `precast data`: rows as a model reads them, and which of their tokens count.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use itertools::Itertools;
use precast_kernels::abi::MASKED_TOKEN;
use precast_plan::Recipe;
use serde::Serialize;

use crate::base::notes::note;
use crate::base::roles::Models;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::{Chunk, Chunking, Corpus, DataError, Files, PromptRule};
use crate::inputs::pair;
use crate::inputs::tokenizer::Tokenizer;
use crate::options::TextOptions;
use crate::options::groups::values::{count, model};
use crate::run::failure::Failure;

/// Bytes of the longest character: tokens that are a part of one each are shown together.
const MOST_BYTES: usize = 4;

/// Rows to read.
#[derive(Args)]
pub struct RowsRequest {
    /// Data, as distill reads --data: files, or directories of them
    #[arg(value_name = "PATH", required = true)]
    pub data: Vec<PathBuf>,
    /// Model whose tokenizer and chat template read them: Hugging Face directory, .gguf or .apr
    #[arg(long, value_name = "PATH", value_parser = model())]
    pub model: PathBuf,
    /// Rows of each file
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: u32,
    /// Longest context: longer rows are truncated
    #[arg(long, value_name = "S", default_value_t = 1024, value_parser = count(Recipe::MOST_TOKENS))]
    pub seq_len: u32,
    #[command(flatten)]
    pub text: TextOptions,
}

/// A row.
#[derive(Serialize)]
pub struct Row {
    file: String,
    row: u64,
    #[serde(flatten)]
    read: Read,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Read {
    Tokens {
        /// Before it is truncated.
        tokens: usize,
        input_ids: Vec<u32>,
        /// -100 where a token does not count.
        labels: Vec<i64>,
        /// Tokens that a teacher reads in place of those before the first that counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        teacher_prompt: Option<Vec<u32>>,
        #[serde(skip)]
        text: String,
    },
    Refused {
        error: String,
    },
}

/// Reads the first rows of each file. `emit` is given each.
///
/// # Errors
/// [`Failure`] of a model or file that cannot be read; and where rows cannot be used, behind them.
pub fn rows(request: &RowsRequest, emit: &mut dyn FnMut(&Row)) -> Result<(), Failure> {
    let model = Checkpoint::open(&request.model)?;
    let files = Files::open(&request.data, request.text.data_field.as_deref())?.with_teacher_prompts();
    let models = Models { student: &model, teachers: Vec::new() };
    let reader = pair::reader(&models, None, request.text.chat.variables(), files.has_chat())?;
    let prompts = PromptRule { of_stream: None, room: u32::MAX, completed: false };
    let chunking = if files.are_prompts(None)? { Chunking::Prompts(prompts) } else { Chunking::Stream };
    let tokenizer = reader.tokenizer.clone();
    let corpus = Corpus::new(files, request.seq_len, chunking, reader)?;
    corpus.notes().iter().for_each(note);
    let (mut all, mut refused) = (0, Vec::new());
    corpus.first_rows(request.rows as usize, &mut |row| {
        all += 1;
        let read = match row.read {
            Ok((chunk, tokens)) => Read::of(&chunk, tokens, tokenizer.as_ref()),
            Err(error) => {
                refused.push(error.clone());
                Read::Refused { error: error.to_string() }
            }
        };
        emit(&Row { file: row.file.display().to_string(), row: row.row, read });
    })?;
    let count = refused.len();
    refused.into_iter().next().map_or(Ok(()), |first: DataError| Err(first.first_of(count, all).into()))
}

impl Read {
    fn of(chunk: &Chunk, tokens: usize, tokenizer: Option<&Arc<Tokenizer>>) -> Self {
        let labels = chunk.labels.as_ref().unwrap_or(&chunk.ids);
        let label = |label: &u32| if *label == MASKED_TOKEN { -100 } else { i64::from(*label) };
        let spell = |ids: &[u32]| tokenizer.map(|tokenizer| tokenizer.spelled(ids));
        let mut text = lines(&chunk.ids, labels, spell);
        let teacher_prompt = chunk.teacher_prompt.clone();
        if let Some(prompt) = &teacher_prompt {
            text += &format!("\nteacher_prompt:\n{}", lines(prompt, &vec![MASKED_TOKEN; prompt.len()], spell));
        }
        let (input_ids, labels) = (chunk.ids.clone(), labels.iter().map(label).collect());
        Self::Tokens { tokens, input_ids, labels, teacher_prompt, text }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, input_ids, labels, text) = match &self.read {
            // It begins with the place.
            Read::Refused { error } => return write!(f, "refused: {error}"),
            Read::Tokens { tokens, input_ids, labels, text, .. } => (*tokens, input_ids, labels, text),
        };
        // The first is predicted by nothing.
        let counted = labels.iter().skip(1).filter(|label| **label != -100).count();
        let kept = input_ids.len();
        let truncated = if kept < tokens { format!(", truncated to {kept}") } else { String::new() };
        write!(f, "{}:{}: {tokens} tokens, {counted} count{truncated}\n{text}", self.file, self.row)
    }
}

/// Tokens as text, between dots; a line ends behind a line break, and those that count are on lines of their own.
fn lines(ids: &[u32], labels: &[u32], spell: impl Fn(&[u32]) -> Option<String>) -> String {
    let mut lines: Vec<(bool, Vec<String>)> = Vec::new();
    let mut parts: Vec<u32> = Vec::new();
    let counts = |at: usize| labels.get(at).map(|label| *label != MASKED_TOKEN);
    for (at, id) in ids.iter().enumerate() {
        parts.push(*id);
        let text = spell(&parts).filter(|text| !text.is_empty()).unwrap_or_else(|| id.to_string());
        let goes_on = text.ends_with(char::REPLACEMENT_CHARACTER) && parts.len() < MOST_BYTES;
        if goes_on && counts(at) == counts(at + 1) {
            continue;
        }
        parts.clear();
        let counts = counts(at) == Some(true);
        let begins = |(counted, tokens): &(bool, Vec<String>)| {
            *counted != counts || tokens.last().is_some_and(|last| last.ends_with('\n'))
        };
        if lines.last().is_none_or(begins) {
            lines.push((counts, Vec::new()));
        }
        lines.last_mut().expect("there is one").1.push(text);
    }
    let escaped = |text: &String| {
        text.chars()
            .map(|one| if one.is_control() { one.escape_default().to_string() } else { one.into() })
            .collect::<String>()
    };
    let line = |(counts, tokens): &(bool, Vec<String>)| {
        format!("{} {}", if *counts { '>' } else { ' ' }, tokens.iter().map(escaped).join("·"))
    };
    lines.iter().map(line).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_count_are_marked_and_parts_of_a_character_are_one() {
        let texts: [&[u8]; 7] = [b"<|user|>", b"\n", b"Hi", b"\xF0\x9F", b"\x8E", b"\x89", b" \t"];
        let spell = |ids: &[u32]| {
            let bytes: Vec<u8> = ids.iter().flat_map(|id| texts[*id as usize].to_vec()).collect();
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let ids = [0, 1, 2, 3, 4, 5, 6];
        let from = |first: usize| (0..7).map(|at| if at < first { MASKED_TOKEN } else { 7 }).collect::<Vec<u32>>();
        assert_eq!(lines(&ids, &from(2), spell), "  <|user|>·\\n\n> Hi·🎉· \\t");
        assert_eq!(lines(&ids, &from(5), spell), "  <|user|>·\\n\n  Hi·\u{FFFD}\n> \u{FFFD} \\t");
        assert_eq!(lines(&[8, 9], &[8, 9], |_| None), "> 8·9");
    }
}
