//! Tiles of queries against all visible keys, with the same roundings as the kernels: `p` before `p v` and
//! `p^T do`, `ds` before both of its GEMMs. The row maximum is taken over the whole row at once.

use rayon::prelude::*;

use super::{AttentionBwd, AttentionDecode, AttentionDelta, AttentionFwd};
use crate::Dtype;
use crate::abi::{
    IDLE_SLOT, attention_bwd_params, attention_decode_params, attention_delta_params, attention_fwd_params,
};
use crate::host::{Matrix, Output, Threads, Views, exp, matmul, round_to, vectorized};
use crate::kv::Pool;

/// Queries handled at a time.
const TILE: usize = 64;

/// Layout of one head's vectors in a packed buffer.
#[derive(Clone, Copy)]
struct Layout {
    seq_len: usize,
    d: usize,
    /// Elements between consecutive positions.
    stride: usize,
}

impl Layout {
    /// Returns positions `first..first + count` of the head at column `column` of batch row `batch`.
    fn rows(self, data: &[f32], batch: usize, column: usize, first: usize, count: usize) -> Matrix<'_> {
        let start = (batch * self.seq_len + first) * self.stride + column * self.d;
        Matrix::rows(&data[start..], count, self.d, self.stride)
    }
}

/// Computes `exp(scale * score - shift)` of the first keys of each row, as many as it sees, and 0 of the others.
fn probabilities(
    scores: &mut [f32],
    keys: usize,
    visible: impl Fn(usize) -> usize,
    scale: f32,
    shift: impl Fn(usize) -> f32,
) {
    for (row, scores) in scores.chunks_mut(keys).enumerate() {
        let shift = shift(row);
        let (visible, hidden) = scores.split_at_mut(visible(row));
        vectorized(|| visible.iter_mut().for_each(|s| *s = exp(*s * scale - shift)));
        hidden.fill(0.0);
    }
}

fn round_all(dtype: Dtype, values: &mut [f32]) {
    if dtype != Dtype::F32 {
        values.iter_mut().for_each(|value| *value = round_to(dtype, *value));
    }
}

/// Queries of one head, and the keys that they see.
struct Tile {
    x: Dtype,
    scale: f32,
    rows: usize,
    keys: usize,
    d: usize,
}

impl Tile {
    /// Attends from each row of `q` to the first `visible` rows of `k` and `v`, and hands its log-sum-exp to `keep`.
    fn attend(
        &self,
        q: Matrix<'_>,
        k: Matrix<'_>,
        v: Matrix<'_>,
        visible: impl Fn(usize) -> usize,
        out: &mut [f32],
        mut keep: impl FnMut(usize, f32),
    ) {
        let Self { x, scale, rows, keys, d } = *self;
        let mut scores = vec![0.0; rows * keys];
        matmul(&mut scores, keys, q, k.t(), Output::Overwrite, Threads::One);
        let largest: Vec<f32> = scores
            .chunks(keys)
            .enumerate()
            .map(|(row, s)| scale * s[..visible(row)].iter().copied().fold(f32::NEG_INFINITY, f32::max))
            .collect();
        probabilities(&mut scores, keys, visible, scale, |row| largest[row]);
        let sums: Vec<f32> = scores.chunks(keys).map(|s| s.iter().map(|s| f64::from(*s)).sum::<f64>() as f32).collect();
        round_all(x, &mut scores);
        matmul(out, d, Matrix::rows(&scores, rows, keys, keys), v, Output::Overwrite, Threads::One);
        for (row, out) in out.chunks_mut(d).enumerate() {
            out.iter_mut().for_each(|o| *o /= sums[row]);
            keep(row, largest[row] + sums[row].ln());
        }
    }
}

pub(super) fn fwd(key: AttentionFwd, p: &attention_fwd_params, views: &mut Views<'_>) {
    let (seq_len, d) = (p.seq_len as usize, key.d as usize);
    let (heads, kv_heads) = (p.heads as usize, p.kv_heads as usize);
    let packed = Layout { seq_len, d, stride: (heads + 2 * kv_heads) * d };
    let qkv = views.load("qkv");
    let lse = views.write::<f32>("lse");
    let mut o = views.store("o");

    // Heads interleave within a row of o, so each head writes its own copy first.
    let outputs: Vec<Vec<f32>> = lse
        .par_chunks_mut(seq_len)
        .enumerate()
        .map(|(index, lse)| {
            let (batch, head) = (index / heads, index % heads);
            let kv_head = head / (heads / kv_heads);
            let mut out = vec![0.0; seq_len * d];
            for first in (0..seq_len).step_by(TILE) {
                let rows = TILE.min(seq_len - first);
                let keys = first + rows;
                let q = packed.rows(&qkv, batch, head, first, rows);
                let k = packed.rows(&qkv, batch, heads + kv_head, 0, keys);
                let v = packed.rows(&qkv, batch, heads + kv_heads + kv_head, 0, keys);
                let tile = Tile { x: key.x, scale: p.scale, rows, keys, d };
                let out = &mut out[first * d..][..rows * d];
                tile.attend(q, k, v, |row| first + row + 1, out, |row, log_sum_exp| lse[first + row] = log_sum_exp);
            }
            out
        })
        .collect();
    o.par_chunks_mut(heads * d).enumerate().for_each(|(token, row)| {
        let (batch, position) = (token / seq_len, token % seq_len);
        for (head, slot) in row.chunks_mut(d).enumerate() {
            slot.copy_from_slice(&outputs[batch * heads + head][position * d..][..d]);
        }
    });
}

/// Attends from each row to the keys of its slot.
pub(super) fn decode(key: AttentionDecode, p: &attention_decode_params, views: &mut Views<'_>) {
    let (d, heads, kv_heads) = (key.d as usize, p.heads as usize, p.kv_heads as usize);
    let group = heads / kv_heads;
    let pool = Pool { kv_heads: p.kv_heads, seq_len: p.seq_len, d: key.d };
    let qkv = views.load("qkv");
    let [pool_keys, pool_values] = ["keys", "values"].map(|name| views.load(name));
    let [slots, positions] = ["slot", "position"].map(|name| views.read::<u32>(name));
    let mut o = views.store("o");
    o.par_chunks_mut(group * d).enumerate().for_each(|(index, o)| {
        let (row, kv_head) = (index / kv_heads, index % kv_heads);
        if slots[row] == IDLE_SLOT {
            return o.fill(0.0);
        }
        let visible = positions[row] as usize + 1;
        // One or two terms are added up in another order than more.
        let keys = visible.max(3);
        let at = pool.at(slots[row], kv_head as u32, 0);
        let [k, v] = [&pool_keys, &pool_values].map(|pool| {
            let mut padded = pool[at..][..visible * d].to_vec();
            padded.resize(keys * d, 0.0);
            padded
        });
        let q = Matrix::rows(&qkv[(row * (heads + 2 * kv_heads) + kv_head * group) * d..], group, d, d);
        let [k, v] = [&k, &v].map(|rows| Matrix::rows(rows, keys, d, d));
        let tile = Tile { x: key.x, scale: p.scale, rows: group, keys, d };
        tile.attend(q, k, v, |_| visible, o, |_, _| {});
    });
}

pub(super) fn delta(key: AttentionDelta, p: &attention_delta_params, views: &mut Views<'_>) {
    let (seq_len, heads, d) = (p.seq_len as usize, p.heads as usize, key.d as usize);
    let o = views.load("o");
    let d_o = views.load("d_o");
    let delta = views.write::<f32>("delta");
    delta.par_chunks_mut(seq_len).enumerate().for_each(|(index, delta)| {
        let (batch, head) = (index / heads, index % heads);
        for (position, delta) in delta.iter_mut().enumerate() {
            let start = ((batch * seq_len + position) * heads + head) * d;
            let pairs = o[start..start + d].iter().zip(&d_o[start..start + d]);
            *delta = pairs.map(|(o, d_o)| f64::from(o * d_o)).sum::<f64>() as f32;
        }
    });
}

pub(super) fn bwd(key: AttentionBwd, p: &attention_bwd_params, views: &mut Views<'_>) {
    let (seq_len, d) = (p.seq_len as usize, key.d as usize);
    let (heads, kv_heads) = (p.heads as usize, p.kv_heads as usize);
    let group = heads / kv_heads;
    let packed = Layout { seq_len, d, stride: (heads + 2 * kv_heads) * d };
    let outputs = Layout { seq_len, d, stride: heads * d };
    let qkv = views.load("qkv");
    let d_o = views.load("d_o");
    let lse = views.read::<f32>("lse");
    let delta = views.read::<f32>("delta");
    let mut dqkv = views.store("dqkv");

    // One task per key/value head; it owns the gradients of its queries, its keys and its values.
    let gradients: Vec<[Vec<f32>; 3]> = (0..p.batch as usize * kv_heads)
        .into_par_iter()
        .map(|index| {
            let (batch, kv_head) = (index / kv_heads, index % kv_heads);
            let mut dq = vec![0.0; group * seq_len * d];
            let (mut dk, mut dv) = (vec![0.0; seq_len * d], vec![0.0; seq_len * d]);
            for (member, dq) in dq.chunks_mut(seq_len * d).enumerate() {
                let head = kv_head * group + member;
                let statistics = (batch * heads + head) * seq_len;
                for first in (0..seq_len).step_by(TILE) {
                    let rows = TILE.min(seq_len - first);
                    let keys = first + rows;
                    let (lse, delta) = (&lse[statistics + first..][..rows], &delta[statistics + first..][..rows]);
                    let q = packed.rows(&qkv, batch, head, first, rows);
                    let k = packed.rows(&qkv, batch, heads + kv_head, 0, keys);
                    let v = packed.rows(&qkv, batch, heads + kv_heads + kv_head, 0, keys);
                    let d_o = outputs.rows(&d_o, batch, head, first, rows);
                    let mut probability = vec![0.0; rows * keys];
                    matmul(&mut probability, keys, q, k.t(), Output::Overwrite, Threads::One);
                    probabilities(&mut probability, keys, |row| first + row + 1, p.scale, |row| lse[row]);
                    let mut dscore = vec![0.0; rows * keys];
                    matmul(&mut dscore, keys, d_o, v.t(), Output::Overwrite, Threads::One);
                    let by_row = dscore.chunks_mut(keys).zip(probability.chunks(keys)).zip(delta);
                    for ((dscore, probability), delta) in by_row {
                        dscore.iter_mut().zip(probability).for_each(|(ds, p)| *ds = p * (*ds - delta));
                    }
                    round_all(key.x, &mut probability);
                    round_all(key.x, &mut dscore);
                    let probability = Matrix::rows(&probability, rows, keys, keys);
                    let dscore = Matrix::rows(&dscore, rows, keys, keys);
                    matmul(&mut dv, d, probability.t(), d_o, Output::Accumulate, Threads::One);
                    matmul(&mut dk, d, dscore.t(), q, Output::Accumulate, Threads::One);
                    matmul(&mut dq[first * d..], d, dscore, k, Output::Overwrite, Threads::One);
                }
            }
            dq.iter_mut().chain(&mut dk).for_each(|gradient| *gradient *= p.scale);
            [dq, dk, dv]
        })
        .collect();
    dqkv.par_chunks_mut(packed.stride).enumerate().for_each(|(token, row)| {
        let (batch, position) = (token / seq_len, token % seq_len);
        for (column, slot) in row.chunks_mut(d).enumerate() {
            let (kv_head, part, member) = if column < heads {
                (column / group, 0, column % group)
            } else {
                let column = column - heads;
                (column % kv_heads, 1 + column / kv_heads, 0)
            };
            let source = &gradients[batch * kv_heads + kv_head][part];
            slot.copy_from_slice(&source[(member * seq_len + position) * d..][..d]);
        }
    });
}
