//! Rows of query and key heads in the order that Hugging Face's files have them.

use rayon::prelude::*;

/// Puts the rows of each head right. Some files, llama.cpp's among them, store the two halves of a head interleaved, rows
/// 0, n/2, 1, n/2 + 1, …, so that pairs which a rotary embedding turns are neighbours.
pub(super) fn deinterleave<T: Copy + Send + Sync>(out: &mut [T], head_count: usize, head_rows: usize) {
    let head_len = out.len() / head_count;
    let row_len = head_len / head_rows;
    out.par_chunks_exact_mut(head_len).for_each(|head| {
        let interleaved = head.to_vec();
        let (first, second) = head.split_at_mut(head_len / 2);
        let rows = first.chunks_exact_mut(row_len).zip(second.chunks_exact_mut(row_len));
        for ((first, second), pair) in rows.zip(interleaved.chunks_exact(2 * row_len)) {
            first.copy_from_slice(&pair[..row_len]);
            second.copy_from_slice(&pair[row_len..]);
        }
    });
}
