//! Dequantizes blocks on the host: the reference of `dequant`, and the reader of GGUF files.
//!
//! Every multiplication and addition is one `f32` operation, in the order of ggml's reference (`dequantize_row_*`), so
//! that values are bit-identical. Layouts are those of ggml's `ggml-common.h`.

use rayon::prelude::*;

use super::{kquants, quants};
use crate::format::Block;

/// Blocks that one task of the thread pool expands.
const BLOCKS_A_TASK: usize = 4096;

/// Dequantizes whole blocks on all threads. `out` has room for exactly their values.
///
/// # Panics
/// If it has not, or `blocks` ends within a block.
pub fn dequantize(block: Block, blocks: &[u8], out: &mut [f32]) {
    let (bytes, elems) = (block.bytes() as usize, block.elems() as usize);
    assert!(blocks.len().is_multiple_of(bytes), "{} bytes are no whole blocks of {block}", blocks.len());
    assert_eq!(blocks.len() / bytes * elems, out.len(), "values of {} bytes of {block}", blocks.len());
    let tasks = blocks.par_chunks(bytes * BLOCKS_A_TASK).zip(out.par_chunks_mut(elems * BLOCKS_A_TASK));
    tasks.for_each(|(blocks, out)| match block {
        Block::Q4_0 => expand(blocks, out, quants::q4_0),
        Block::Q4_1 => expand(blocks, out, quants::q4_1),
        Block::Q5_0 => expand(blocks, out, quants::q5_0),
        Block::Q5_1 => expand(blocks, out, quants::q5_1),
        Block::Q8_0 => expand(blocks, out, quants::q8_0),
        Block::Q4_K => expand(blocks, out, kquants::q4_k),
        Block::Q5_K => expand(blocks, out, kquants::q5_k),
        Block::Q6_K => expand(blocks, out, kquants::q6_k),
    });
}

/// Expands block by block.
fn expand<const BYTES: usize, const LEN: usize>(
    blocks: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let blocks = blocks.as_chunks().0;
    blocks.iter().zip(out.as_chunks_mut().0).for_each(|(bytes, out)| block(bytes, out));
}
