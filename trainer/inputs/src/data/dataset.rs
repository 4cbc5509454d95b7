//! Data that are in memory whole.

use super::{Chunk, Corpus, DataError, Summary};

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
