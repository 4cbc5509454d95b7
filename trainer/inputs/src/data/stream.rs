//! The chunks of a portion of data, pass after pass, read ahead on a thread of its own.

use std::sync::Arc;

use super::queue::{Item, Queue};
use super::{Chunk, Corpus, DataError, Summary};

/// Tokens that a start waits for: what is wrong with them is said before anything else is done.
const FIRST_TOKENS: usize = 128 << 10;
/// Tokens that are read ahead.
const AHEAD_TOKENS: usize = 512 << 10;
/// Data with no more tokens are kept after the first pass; others are read again in each.
pub const MOST_KEPT_TOKENS: usize = 16 << 20;

/// Bytes of host memory that data take while a run trains on them, at most: tokens with their labels, kept or in a
/// window of the shuffle, read ahead, and rows as they are read and tokenized.
pub const MOST_BYTES: u64 = 8 * (2 * MOST_KEPT_TOKENS as u64 + AHEAD_TOKENS as u64) + (256 << 20);

/// Chunks of a portion in file order, pass after pass.
pub struct Stream {
    corpus: Arc<Corpus>,
    /// Index of the portion.
    portion: usize,
    queue: Arc<Queue>,
    /// Those of the first pass; none where they are too many.
    kept: Option<Vec<Arc<Chunk>>>,
    tokens: usize,
    most_kept: usize,
    /// What a pass comes to, once one has ended.
    pub summary: Option<Summary>,
    /// Where a pass over what is kept is.
    at: usize,
}

impl Stream {
    /// Starts reading a portion of so many.
    pub fn start(corpus: Arc<Corpus>, (portion, portions): (usize, usize)) -> Self {
        Self::bounded(corpus, portion, AHEAD_TOKENS / portions, MOST_KEPT_TOKENS / portions)
    }

    /// Like [`Self::start`], with so many tokens ahead, and kept.
    pub(super) fn bounded(corpus: Arc<Corpus>, portion: usize, ahead: usize, most_kept: usize) -> Self {
        let queue = Arc::new(Queue::new(ahead));
        let (of_thread, read) = (Arc::clone(&queue), Arc::clone(&corpus));
        // It ends by itself, with the process or as soon as nobody takes what it reads.
        std::thread::spawn(move || {
            let _ended = Ended(Arc::clone(&of_thread));
            produce(&read, portion, &of_thread, most_kept);
        });
        Self { corpus, portion, queue, kept: Some(Vec::new()), tokens: 0, most_kept, summary: None, at: 0 }
    }

    /// Waits until a part of what is read ahead is there. Says what a pass comes to, if that is all of one.
    ///
    /// # Errors
    /// [`DataError`] of what has been read.
    pub fn read_ahead(&self) -> Result<Option<Summary>, DataError> {
        match self.summary {
            Some(summary) => Ok(Some(summary)),
            None => self.queue.filled(FIRST_TOKENS),
        }
    }

    /// Counts a pass, which is read for nothing else where it is more than is read ahead.
    ///
    /// # Errors
    /// [`DataError`] of what is read.
    pub fn count(&self) -> Result<Summary, DataError> {
        self.read_ahead()?.map_or_else(|| self.corpus.pass_of(self.portion, &mut |_| true), Ok)
    }

    /// The next chunk; none once at the end of each pass.
    ///
    /// # Errors
    /// [`DataError`] of what is read.
    pub fn next_chunk(&mut self) -> Result<Option<Arc<Chunk>>, DataError> {
        if let (Some(kept), Some(_)) = (&self.kept, self.summary) {
            let next = kept.get(self.at).map(Arc::clone);
            self.at = if next.is_some() { self.at + 1 } else { 0 };
            return Ok(next);
        }
        match self.queue.pop() {
            Item::Chunk(chunk) => {
                self.tokens += chunk.tokens();
                if self.tokens > self.most_kept {
                    self.kept = None;
                } else if let Some(kept) = &mut self.kept {
                    kept.push(Arc::clone(&chunk));
                }
                Ok(Some(chunk))
            }
            Item::End(summary) => {
                self.summary.get_or_insert(summary);
                Ok(None)
            }
            Item::Failed(error) => Err(error.after_start()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Says that nothing comes any more, whatever ends the thread.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn produce(corpus: &Corpus, portion: usize, queue: &Queue, most_kept: usize) {
    loop {
        let mut tokens = 0;
        let pass = corpus.pass_of(portion, &mut |chunk| {
            tokens += chunk.tokens();
            queue.push(Item::Chunk(Arc::new(chunk)))
        });
        let goes_on = match pass {
            Ok(summary) => queue.push(Item::End(summary)) && tokens > most_kept,
            Err(error) => {
                queue.push(Item::Failed(error));
                false
            }
        };
        if !goes_on {
            return;
        }
    }
}
