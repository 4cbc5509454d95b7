//! Rows of query and key heads in the order that Hugging Face's files have them.

use precast_plan::family::{Family, Module};
use rayon::prelude::*;

/// Query and key heads of a model, at least one each, in files that have the halves of their rows interleaved.
pub(super) struct Interleaved {
    pub family: &'static Family,
    pub heads: u64,
    pub kv_heads: u64,
}

impl Interleaved {
    /// How many heads the rows of a tensor are of; none where they are of another module.
    pub fn of(&self, name: &str) -> Option<u64> {
        let (module, _) = name.rsplit_once('.').filter(|(_, part)| matches!(*part, "weight" | "bias"))?;
        let modules = self.family.modules;
        let of = |(projection, _): &(&Module, u64)| module.ends_with(projection.hugging_face);
        [(&modules.q, self.heads), (&modules.k, self.kv_heads)].into_iter().find(of).map(|(_, heads)| heads)
    }
}

/// Puts the rows of each head right. Some files, llama.cpp's among them, store the two halves of a head interleaved,
/// rows 0, n/2, 1, n/2 + 1, …, so that pairs which a rotary embedding turns are neighbors.
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

/// Stores the rows of each head as [`deinterleave`] finds them.
pub(super) fn interleave<T: Copy + Send + Sync>(out: &mut [T], head_count: usize, head_rows: usize) {
    let head_len = out.len() / head_count;
    let row_len = head_len / head_rows;
    out.par_chunks_exact_mut(head_len).for_each(|head| {
        let plain = head.to_vec();
        let (first, second) = plain.split_at(head_len / 2);
        let rows = first.chunks_exact(row_len).zip(second.chunks_exact(row_len));
        for (pair, (first, second)) in head.chunks_exact_mut(2 * row_len).zip(rows) {
            pair[..row_len].copy_from_slice(first);
            pair[row_len..].copy_from_slice(second);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaving_is_undone_by_reading() {
        let plain: Vec<u32> = (0..2 * 6 * 3).collect();
        let mut rows = plain.clone();
        interleave(&mut rows, 2, 6);
        // Rows 0, 3, 1, 4, 2, 5 of the first head.
        assert_eq!(rows[..9], [0, 1, 2, 9, 10, 11, 3, 4, 5]);
        deinterleave(&mut rows, 2, 6);
        assert_eq!(rows, plain);
    }
}
