//! The portions of data, each read pass after pass.

use std::sync::Arc;

use super::{Corpus, DataError, Portion, Stream, Summaries, Summary};

/// A stream of each portion of a corpus.
pub struct Streams {
    pub corpus: Arc<Corpus>,
    pub(super) portions: Vec<Stream>,
}

impl Streams {
    /// Starts reading.
    pub fn start(corpus: Arc<Corpus>) -> Self {
        let count = corpus.portions.len();
        let portions = (0..count).map(|portion| Stream::start(Arc::clone(&corpus), (portion, count))).collect();
        Self { corpus, portions }
    }

    /// Waits until a part of what is read ahead is there. Says what a pass comes to, if that is all of one.
    ///
    /// # Errors
    /// [`DataError`] of what has been read.
    pub fn read_ahead(&self) -> Result<Option<Summaries>, DataError> {
        // All of them have begun: whichever is waited for, the others go on.
        let ahead = self.portions.iter().map(Stream::read_ahead).collect::<Result<Vec<_>, _>>()?;
        Ok(self.summaries(ahead))
    }

    /// Counts a pass: what is more than is read ahead is read once more.
    ///
    /// # Errors
    /// [`DataError`] of what is read.
    pub fn count(&self) -> Result<Summaries, DataError> {
        let counted = self.portions.iter().map(|portion| portion.count().map(Some)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.summaries(counted).expect("each portion is counted"))
    }

    /// Returns what a pass comes to, once one over each portion has ended.
    pub fn passed(&self) -> Option<Summaries> {
        self.summaries(self.portions.iter().map(|portion| portion.summary).collect())
    }

    fn summaries(&self, each: Vec<Option<Summary>>) -> Option<Summaries> {
        let named = self.corpus.portions.iter().cloned().zip(each);
        named.map(|(portion, summary): (Portion, _)| Some((portion, summary?))).collect::<Option<_>>().map(Summaries)
    }
}
