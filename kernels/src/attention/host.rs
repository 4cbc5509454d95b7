//! Tiles of queries against all visible keys, with the same roundings as the kernels: `p` before `p v` and
//! `p^T do`, `ds` before both of its GEMMs. The row maximum is taken over the whole row at once.

use std::borrow::Cow;
use std::ops::Range;

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
    d: usize,
    /// Elements between consecutive tokens.
    stride: usize,
}

impl Layout {
    /// Returns tokens `first..first + count` of the head at column `column`.
    fn rows(self, data: &[f32], column: usize, first: usize, count: usize) -> Matrix<'_> {
        Matrix::rows(&data[first * self.stride + column * self.d..], count, self.d, self.stride)
    }
}

/// A sequence: the place of its first token, and its tokens.
#[derive(Clone, Copy)]
struct Sequence {
    first: usize,
    tokens: usize,
}

/// Returns the sequences of a launch that have tokens.
fn sequences(views: &mut Views<'_>) -> Vec<Sequence> {
    let all = views.read::<u32>("sequences").chunks_exact(2);
    let all = all.map(|pair| Sequence { first: pair[0] as usize, tokens: pair[1] as usize });
    all.filter(|sequence| sequence.tokens > 0).collect()
}

/// Fewest tokens that are computed: one or two terms are added up in another order than more.
const FEWEST: usize = 3;

impl Sequence {
    /// Tokens that are computed: zeros behind those that there are.
    fn computed(self) -> usize {
        self.tokens.max(FEWEST)
    }

    /// Returns rows of so many elements from its first token on.
    fn rows(self, data: &[f32], stride: usize) -> Cow<'_, [f32]> {
        let rows = &data[self.first * stride..];
        if self.tokens >= FEWEST {
            return Cow::Borrowed(rows);
        }
        let mut padded = rows[..self.tokens * stride].to_vec();
        padded.resize(FEWEST * stride, 0.0);
        Cow::Owned(padded)
    }
}

/// Calls `put` with the token, of each of these sequences, and its row in what was computed of each of `parts` of it.
fn scatter<T>(sequences: &[Sequence], parts: usize, results: &[T], mut put: impl FnMut(usize, usize, usize, &T)) {
    for (index, result) in results.iter().enumerate() {
        let Sequence { first, tokens } = sequences[index / parts];
        (0..tokens).for_each(|position| put(first + position, position, index % parts, result));
    }
}

/// Returns the keys that a query sees.
fn visible(query: usize, window: Option<u32>) -> Range<usize> {
    let first = window.map_or(0, |window| (query + 1).saturating_sub(window as usize));
    first..query + 1
}

/// Computes `exp(scale * score - shift)` of the keys that each row sees, and 0 of the others.
fn probabilities(
    scores: &mut [f32],
    keys: usize,
    visible: impl Fn(usize) -> Range<usize>,
    scale: f32,
    shift: impl Fn(usize) -> f32,
) {
    for (row, scores) in scores.chunks_mut(keys).enumerate() {
        let shift = shift(row);
        let Range { start, end } = visible(row);
        vectorized(|| scores[start..end].iter_mut().for_each(|s| *s = exp(*s * scale - shift)));
        scores[..start].fill(0.0);
        scores[end..].fill(0.0);
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
    /// Attends from each row of `q` to the `visible` rows of `k` and `v`, and hands its log-sum-exp to `keep`.
    fn attend(
        &self,
        q: Matrix<'_>,
        k: Matrix<'_>,
        v: Matrix<'_>,
        visible: impl Fn(usize) -> Range<usize>,
        out: &mut [f32],
        mut keep: impl FnMut(usize, f32),
    ) {
        let Self { x, scale, rows, keys, d } = *self;
        let mut scores = vec![0.0; rows * keys];
        matmul(&mut scores, keys, q, k.t(), Output::Overwrite, Threads::One);
        let largest: Vec<f32> = scores
            .chunks(keys)
            .enumerate()
            .map(|(row, s)| scale * s[visible(row)].iter().copied().fold(f32::NEG_INFINITY, f32::max))
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
    let (tokens, d) = (p.tokens as usize, key.d as usize);
    let (heads, kv_heads) = (p.heads as usize, p.kv_heads as usize);
    let packed = Layout { d, stride: (heads + 2 * kv_heads) * d };
    let sequences = sequences(views);
    let qkv = views.load("qkv");
    let lse = views.write::<f32>("lse");
    let mut o = views.store("o");

    // Heads interleave within a row of o, so each head of a sequence writes its own copy first.
    let attended: Vec<(Vec<f32>, Vec<f32>)> = (0..sequences.len() * heads)
        .into_par_iter()
        .map(|index| {
            let (sequence, head) = (sequences[index / heads], index % heads);
            let (tokens, qkv) = (sequence.computed(), sequence.rows(&qkv, packed.stride));
            let kv_head = head / (heads / kv_heads);
            let (mut out, mut lse) = (vec![0.0; tokens * d], vec![0.0; tokens]);
            for first in (0..tokens).step_by(TILE) {
                let rows = TILE.min(tokens - first);
                let keys = first + rows;
                let q = packed.rows(&qkv, head, first, rows);
                let k = packed.rows(&qkv, heads + kv_head, 0, keys);
                let v = packed.rows(&qkv, heads + kv_heads + kv_head, 0, keys);
                let tile = Tile { x: key.x, scale: p.scale, rows, keys, d };
                let out = &mut out[first * d..][..rows * d];
                let sees = |row| visible(first + row, key.window);
                tile.attend(q, k, v, sees, out, |row, log_sum_exp| lse[first + row] = log_sum_exp);
            }
            (out, lse)
        })
        .collect();
    scatter(&sequences, heads, &attended, |token, position, head, (out, of_head)| {
        o[(token * heads + head) * d..][..d].copy_from_slice(&out[position * d..][..d]);
        lse[head * tokens + token] = of_head[position];
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
        let last = positions[row] as usize;
        let keys = (last + 1).max(FEWEST);
        let at = pool.at(slots[row], kv_head as u32, 0);
        let [k, v] = [&pool_keys, &pool_values].map(|pool| {
            let mut padded = pool[at..][..(last + 1) * d].to_vec();
            padded.resize(keys * d, 0.0);
            padded
        });
        let q = Matrix::rows(&qkv[(row * (heads + 2 * kv_heads) + kv_head * group) * d..], group, d, d);
        let [k, v] = [&k, &v].map(|rows| Matrix::rows(rows, keys, d, d));
        let tile = Tile { x: key.x, scale: p.scale, rows: group, keys, d };
        tile.attend(q, k, v, |_| visible(last, key.window), o, |_, _| {});
    });
}

pub(super) fn delta(key: AttentionDelta, p: &attention_delta_params, views: &mut Views<'_>) {
    let (tokens, heads, d) = (p.tokens as usize, p.heads as usize, key.d as usize);
    let o = views.load("o");
    let d_o = views.load("d_o");
    let delta = views.write::<f32>("delta");
    delta.par_chunks_mut(tokens).enumerate().for_each(|(head, delta)| {
        for (token, delta) in delta.iter_mut().enumerate() {
            let start = (token * heads + head) * d;
            let pairs = o[start..start + d].iter().zip(&d_o[start..start + d]);
            *delta = pairs.map(|(o, d_o)| f64::from(o * d_o)).sum::<f64>() as f32;
        }
    });
}

pub(super) fn bwd(key: AttentionBwd, p: &attention_bwd_params, views: &mut Views<'_>) {
    let (all_tokens, d) = (p.tokens as usize, key.d as usize);
    let (heads, kv_heads) = (p.heads as usize, p.kv_heads as usize);
    let group = heads / kv_heads;
    let packed = Layout { d, stride: (heads + 2 * kv_heads) * d };
    let outputs = Layout { d, stride: heads * d };
    let sequences = sequences(views);
    let qkv = views.load("qkv");
    let d_o = views.load("d_o");
    let lse = views.read::<f32>("lse");
    let delta = views.read::<f32>("delta");
    let mut dqkv = views.store("dqkv");

    // One task per key/value head of a sequence; it owns the gradients of its queries, its keys and its values.
    let gradients: Vec<[Vec<f32>; 3]> = (0..sequences.len() * kv_heads)
        .into_par_iter()
        .map(|index| {
            let (sequence, kv_head) = (sequences[index / kv_heads], index % kv_heads);
            let tokens = sequence.computed();
            let (qkv, d_o) = (sequence.rows(&qkv, packed.stride), sequence.rows(&d_o, outputs.stride));
            let mut dq = vec![0.0; group * tokens * d];
            let (mut dk, mut dv) = (vec![0.0; tokens * d], vec![0.0; tokens * d]);
            for (member, dq) in dq.chunks_mut(tokens * d).enumerate() {
                let head = kv_head * group + member;
                let [lse, delta] = [lse, delta].map(|all| sequence.rows(&all[head * all_tokens..], 1));
                for first in (0..tokens).step_by(TILE) {
                    let rows = TILE.min(tokens - first);
                    let keys = first + rows;
                    let (lse, delta) = (&lse[first..][..rows], &delta[first..][..rows]);
                    let q = packed.rows(&qkv, head, first, rows);
                    let k = packed.rows(&qkv, heads + kv_head, 0, keys);
                    let v = packed.rows(&qkv, heads + kv_heads + kv_head, 0, keys);
                    let d_o = outputs.rows(&d_o, head, first, rows);
                    let mut probability = vec![0.0; rows * keys];
                    matmul(&mut probability, keys, q, k.t(), Output::Overwrite, Threads::One);
                    let sees = |row| visible(first + row, key.window);
                    probabilities(&mut probability, keys, sees, p.scale, |row| lse[row]);
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
    scatter(&sequences, kv_heads, &gradients, |token, position, kv_head, gradients| {
        let row = &mut dqkv[token * packed.stride..][..packed.stride];
        let mut put = |column: usize, part: usize, row_of_part: usize| {
            row[column * d..][..d].copy_from_slice(&gradients[part][row_of_part * d..][..d]);
        };
        let tokens = gradients[1].len() / d;
        (0..group).for_each(|member| put(kv_head * group + member, 0, member * tokens + position));
        put(heads + kv_head, 1, position);
        put(heads + kv_heads + kv_head, 2, position);
    });
}
