//! Training and evaluation data: files to rows, rows to token chunks of a fixed length, in file order.

mod batch;
mod cell;
mod corpus;
mod csv;
mod dialects;
mod error;
mod files;
mod first_rows;
mod foreign;
mod json;
mod jsonl;
mod levels;
mod mixture;
mod notes;
mod opened;
mod pages;
mod parquet;
mod pass;
mod prompts;
mod queue;
mod rows;
mod source;
mod stream;
mod streams;
mod summary;
mod tokens;

use std::sync::Arc;

use precast_kernels::abi::MASKED_TOKEN;

use crate::chat::Chat;
use crate::tokenizer::Tokenizer;

pub use batch::{Batches, MicroBatch, Order, Step};
pub use corpus::Corpus;
pub use error::DataError;
pub use files::bytes;
pub use first_rows::FirstRow;
pub use mixture::{DataSource, Portion, Summaries, path_of};
pub use opened::Files;
pub use prompts::{Prompt, beginning};
pub use stream::MOST_BYTES;
use stream::Stream;
pub use streams::Streams;
pub use summary::Summary;

/// Longest document: the tokenizers library takes about sixty times its size for a while.
const MOST_DOCUMENT_BYTES: u64 = 256 << 20;

/// The rule by which documents become chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// For training: documents follow each other, each ended by the end-of-text token; the last chunk is
    /// padded with masked tokens.
    Stream,
    /// For evaluation: every document by itself and nothing added to it; its last chunk is padded.
    PerDocument,
    /// For students that complete prompts.
    Prompts(PromptRule),
}

/// The rule by which sequences become prompts. What counts of a chunk is the completion that its row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptRule {
    /// Tokens at the beginning of each sequence of a stream that are its prompt.
    pub of_stream: Option<u32>,
    /// Tokens of a prompt, at most.
    pub room: u32,
    /// True if rows must have completions.
    pub completed: bool,
}

/// What reads text.
#[derive(Clone, Default)]
pub struct Reader {
    /// Turns text into ids.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Turns messages into text.
    pub chat: Chat,
    /// Ends a document.
    pub eos: Option<u32>,
    /// Ids below this are the student's.
    pub vocab: u32,
}

/// A sequence of at most seq_len + 1 tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub ids: Vec<u32>,
    /// What each token is predicted as, [`MASKED_TOKEN`] where it does not count; none where it is as itself.
    pub labels: Option<Vec<u32>>,
}

impl Chunk {
    /// Tokens that are predicted as themselves.
    pub fn plain(ids: impl Into<Vec<u32>>) -> Self {
        Self { ids: ids.into(), labels: None }
    }

    /// Tokens before the first that counts.
    pub fn prompt(&self) -> &[u32] {
        let labels = self.labels.as_deref().unwrap_or(&self.ids);
        &self.ids[..labels.iter().position(|label| *label != MASKED_TOKEN).unwrap_or(self.ids.len())]
    }

    /// What each token but the first is predicted as, from the ones before it.
    pub fn targets(&self) -> &[u32] {
        self.labels.as_ref().unwrap_or(&self.ids).get(1..).unwrap_or_default()
    }

    /// Drops what is behind so many tokens.
    pub fn truncate(&mut self, most: usize) {
        self.ids.truncate(most);
        self.labels.iter_mut().for_each(|labels| labels.truncate(most));
    }

    /// Lays it out as inputs and targets, which are 0 and masked where it ends before them.
    pub fn lay_out(&self, ids: &mut [u32], targets: &mut [u32]) {
        let place = |(slot, word): (&mut u32, &u32)| *slot = *word;
        ids.iter_mut().zip(&self.ids).for_each(place);
        targets.iter_mut().zip(self.targets()).for_each(place);
    }

    /// Tokens that count.
    pub fn counted(&self) -> usize {
        self.targets().iter().filter(|target| **target != MASKED_TOKEN).count()
    }

    /// Everything that is learnt from it, as bytes: for digests.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        [&self.ids].into_iter().chain(&self.labels).map(|words| bytemuck::cast_slice(words))
    }
}

/// Data that are in memory whole: what an evaluation scores.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub chunks: Vec<Chunk>,
    /// What reading them came to.
    pub summary: Summary,
    /// Notes for people.
    pub notes: Vec<String>,
}

impl Dataset {
    /// Everything of a corpus.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn of(corpus: &Corpus) -> Result<Self, DataError> {
        let mut chunks = Vec::new();
        let summary = corpus.pass_while(&mut |chunk| {
            chunks.push(chunk);
            true
        })?;
        // Refuses files that were changed meanwhile.
        corpus.digest()?;
        let notes = corpus.notes().into_iter().chain(summary.note(corpus.chunk)).collect();
        Ok(Self { chunks, summary, notes })
    }

    /// Tokens that count: none of prompts alone.
    pub fn counted(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.counted() as u64).sum()
    }
}

#[cfg(test)]
mod tests;
