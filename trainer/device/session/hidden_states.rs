//! The hidden states of a cached teacher, laid out for micro-batches.

use std::sync::Arc;

use precast_kernels::Dtype;
use precast_kernels::abi::MASKED_TOKEN;
use rayon::prelude::*;

use crate::inputs::data::{Chunk, MicroBatch};
use crate::inputs::teacher_cache::{CacheError, Key, TeacherCache};

/// Returns the key of a chunk, laid out as sequences of so many tokens.
pub fn key_of(chunk: &Chunk, seq_len: u32) -> Key {
    let (mut ids, mut targets) = (vec![0; seq_len as usize], vec![MASKED_TOKEN; seq_len as usize]);
    chunk.lay_out(&mut ids, &mut targets);
    Key::of(&ids, &targets)
}

/// A cache, and memory for the hidden states of a micro-batch.
pub struct HiddenStates {
    cache: Arc<TeacherCache>,
    seq_len: usize,
    row_bytes: usize,
    laid_out: Vec<u8>,
}

impl HiddenStates {
    /// Reads rows of a dtype from a cache.
    pub fn of(cache: &Arc<TeacherCache>, dtype: Dtype) -> Self {
        let made = &cache.manifest().made;
        let row_bytes = made.hidden as usize * dtype.bytes() as usize;
        Self { cache: Arc::clone(cache), seq_len: made.seq_len as usize, row_bytes, laid_out: Vec::new() }
    }

    /// Returns the hidden states of a micro-batch, `[tokens, hidden]`: zero where a token does not count.
    ///
    /// # Errors
    /// [`CacheError`] where the cache lacks a sequence or holds other bytes than were written.
    pub fn of_batch(&mut self, batch: &MicroBatch) -> Result<&[u8], CacheError> {
        let Self { cache, seq_len, row_bytes, laid_out } = self;
        laid_out.resize(batch.ids.len() * *row_bytes, 0);
        let sequences = batch.ids.par_chunks(*seq_len).zip(batch.targets.par_chunks(*seq_len));
        sequences.zip(laid_out.par_chunks_mut(*seq_len * *row_bytes)).try_for_each(|((ids, targets), rows)| {
            if targets.iter().all(|target| *target == MASKED_TOKEN) {
                rows.fill(0);
                return Ok::<_, CacheError>(());
            }
            let stored = cache.read(&Key::of(ids, targets))?;
            let mut stored = stored.chunks_exact(*row_bytes);
            for (target, row) in targets.iter().zip(rows.chunks_exact_mut(*row_bytes)) {
                match *target {
                    MASKED_TOKEN => row.fill(0),
                    _ => row.copy_from_slice(stored.next().expect("a row for each token that counts")),
                }
            }
            Ok(())
        })?;
        Ok(laid_out)
    }

    /// Has the cache read sequences on other threads.
    pub fn read_ahead(&self, chunks: &[Arc<Chunk>]) {
        let keys =
            chunks.par_iter().filter(|chunk| chunk.counted() > 0).map(|chunk| key_of(chunk, self.seq_len as u32));
        self.cache.read_ahead(&keys.collect::<Vec<Key>>());
    }
}
