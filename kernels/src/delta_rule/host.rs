use rayon::prelude::*;

use super::{DeltaRuleBwd, DeltaRuleFwd, DeltaRuleSolve, DeltaRuleStateBwd};
use crate::abi::{
    DELTA_CHUNK, DELTA_HEAD, delta_rule_bwd_params, delta_rule_fwd_params, delta_rule_solve_params,
    delta_rule_state_bwd_params,
};
use crate::host::{Matrix, Output, Threads, Views, matmul, round_to};

pub(super) const CHUNK: usize = DELTA_CHUNK as usize;
pub(super) const D: usize = DELTA_HEAD as usize;
/// Added to the sum of squares of a query or a key.
const EPS: f64 = 1e-6;

/// Tokens of a sequence that are computed together.
#[derive(Clone, Copy)]
struct Chunk {
    /// Place of its first token.
    first: usize,
    rows: usize,
    /// Index of the state before it; none for zeros.
    before: Option<usize>,
    /// Index of the state behind it, if another chunk reads that.
    behind: Option<usize>,
}

/// Returns the chunks of each sequence.
fn chunks(views: &mut Views<'_>) -> Vec<Vec<Chunk>> {
    let words = views.read::<u32>("sequences");
    let of_sequence = |pair: &[u32]| {
        let (first, end) = (pair[0] as usize, (pair[0] + pair[1]) as usize);
        // Full chunks do not overlap, so that no two begin between the same multiples of their length.
        let chunk = |start: usize| Chunk {
            first: start,
            rows: CHUNK.min(end - start),
            before: (start > first).then(|| (start - CHUNK) / CHUNK),
            behind: (start + CHUNK < end).then_some(start / CHUNK),
        };
        (first..end).step_by(CHUNK).map(chunk).collect()
    };
    words.chunks(2).map(of_sequence).collect()
}

/// A matrix of rows of equal width.
#[derive(Clone)]
pub(super) struct Rows {
    pub columns: usize,
    pub data: Vec<f32>,
}

impl Rows {
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { columns, data: vec![0.0; rows * columns] }
    }

    /// Takes a head of the tokens of a chunk, of rows of `stride` elements; zeros behind the last.
    fn of_head(all: &[f32], chunk: Chunk, stride: usize, head: usize, columns: usize) -> Self {
        let mut taken = Self::zeros(CHUNK, columns);
        for (row, out) in taken.data.chunks_mut(columns).take(chunk.rows).enumerate() {
            out.copy_from_slice(&all[(chunk.first + row) * stride + head * columns..][..columns]);
        }
        taken
    }

    fn count(&self) -> usize {
        self.data.len() / self.columns
    }

    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.columns..][..self.columns]
    }

    /// Multiplies each row by a factor.
    pub fn scaled(mut self, factor: impl Fn(usize) -> f32) -> Self {
        for (row, values) in self.data.chunks_mut(self.columns).enumerate() {
            values.iter_mut().for_each(|value| *value *= factor(row));
        }
        self
    }

    /// Replaces each element, of its row and column.
    pub fn mapped(mut self, value: impl Fn(usize, usize, f32) -> f32) -> Self {
        for (row, values) in self.data.chunks_mut(self.columns).enumerate() {
            values.iter_mut().enumerate().for_each(|(column, it)| *it = value(row, column, *it));
        }
        self
    }

    pub fn rounded(self, x: crate::Dtype) -> Self {
        self.mapped(|_, _, value| round_to(x, value))
    }

    pub fn plus(mut self, other: &Self) -> Self {
        self.data.iter_mut().zip(&other.data).for_each(|(sum, value)| *sum += value);
        self
    }

    pub fn view(&self) -> Matrix<'_> {
        Matrix::rows(&self.data, self.count(), self.columns, self.columns)
    }
}

pub(super) fn multiply(a: Matrix<'_>, b: Matrix<'_>, rows: usize, columns: usize) -> Rows {
    let mut out = Rows::zeros(rows, columns);
    matmul(&mut out.data, columns, a, b, Output::Overwrite, Threads::One);
    out
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Operands of which a chunk and a value head read a part.
struct Inputs<'a> {
    key_heads: usize,
    value_heads: usize,
    qkv: &'a [f32],
    decay: &'a [f32],
    beta: &'a [f32],
    scale: &'a [f32],
}

impl Inputs<'_> {
    /// Returns the key head of a value head.
    fn key_head(&self, head: usize) -> usize {
        head / (self.value_heads / self.key_heads)
    }

    fn stride(&self) -> usize {
        (2 * self.key_heads + self.value_heads) * D
    }

    fn queries(&self, chunk: Chunk, head: usize) -> Rows {
        Rows::of_head(self.qkv, chunk, self.stride(), self.key_head(head), D)
    }

    fn keys(&self, chunk: Chunk, head: usize) -> Rows {
        Rows::of_head(self.qkv, chunk, self.stride(), self.key_heads + self.key_head(head), D)
    }

    fn values(&self, chunk: Chunk, head: usize) -> Rows {
        Rows::of_head(self.qkv, chunk, self.stride(), 2 * self.key_heads + head, D)
    }

    /// Returns a value of each token of a chunk; 0 behind the last.
    fn column(all: &[f32], chunk: Chunk, stride: usize, column: usize) -> Vec<f32> {
        let of = |row: usize| if row < chunk.rows { all[(chunk.first + row) * stride + column] } else { 0.0 };
        (0..CHUNK).map(of).collect()
    }

    fn decays(&self, chunk: Chunk, head: usize) -> Vec<f32> {
        Self::column(self.decay, chunk, self.value_heads, head)
    }

    fn betas(&self, chunk: Chunk, head: usize) -> Vec<f32> {
        Self::column(self.beta, chunk, self.value_heads, head)
    }

    /// Returns the factors of queries and of keys.
    fn scales(&self, chunk: Chunk, head: usize) -> [Vec<f32>; 2] {
        let of = |part: usize| part * self.key_heads + self.key_head(head);
        [0, 1].map(|part| Self::column(self.scale, chunk, 2 * self.key_heads, of(part)))
    }
}

/// Writes the rows of a chunk to a head of rows of `stride` elements.
fn put(all: &mut [f32], chunk: Chunk, stride: usize, head: usize, rows: &Rows) {
    for row in 0..chunk.rows {
        all[(chunk.first + row) * stride + head * rows.columns..][..rows.columns].copy_from_slice(rows.row(row));
    }
}

/// Returns the factors that normalize a head as a query and as a key.
pub(super) fn factors_of(head: &[f32]) -> [f32; 2] {
    let root = (dot(head, head) + EPS).sqrt();
    [1.0 / (root * (D as f64).sqrt()), 1.0 / root].map(|factor| factor as f32)
}

/// `-exp(a_log) softplus(a + dt_bias)`.
pub(super) fn log_decay(a: f32, a_log: f32, dt_bias: f32) -> f64 {
    let x = f64::from(a + dt_bias);
    -f64::from(a_log).exp() * if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// Adds a token's to the log of all decays before it, in f32 as decoding keeps it.
pub(super) fn decayed_by(before: f32, log_decay: f64) -> f32 {
    (f64::from(before) + log_decay) as f32
}

pub(super) fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

pub(super) fn solve(key: DeltaRuleSolve, p: &delta_rule_solve_params, views: &mut Views<'_>) {
    let chunks: Vec<Chunk> = chunks(views).concat();
    let (key_heads, value_heads) = (p.key_heads as usize, p.value_heads as usize);
    let (gate_columns, b_column) = (p.gate_columns as usize, p.b_column as usize);
    let (qkv, gates) = (views.load("qkv"), views.load("gates"));
    let (a_log, dt_bias) = views.read::<f32>("rates").split_at(value_heads);
    let [decay, beta, scale] = ["decay", "beta", "scale"].map(|name| views.write::<f32>(name));
    let inputs = Inputs { key_heads, value_heads, qkv: &qkv, decay: &[], beta: &[], scale: &[] };
    for chunk in &chunks {
        for row in chunk.first..chunk.first + chunk.rows {
            for (index, factor) in scale[row * 2 * key_heads..][..2 * key_heads].iter_mut().enumerate() {
                *factor = factors_of(&qkv[row * inputs.stride() + index * D..][..D])[index / key_heads];
            }
            for head in 0..value_heads {
                beta[row * value_heads + head] =
                    round_to(key.x, sigmoid(gates[row * gate_columns + b_column + head]) as f32);
            }
        }
        for head in 0..value_heads {
            let mut sum = 0.0;
            for row in chunk.first..chunk.first + chunk.rows {
                let a = gates[row * gate_columns + b_column + value_heads + head];
                sum = decayed_by(sum, log_decay(a, a_log[head], dt_bias[head]));
                decay[row * value_heads + head] = sum;
            }
        }
    }
    let inputs = Inputs { decay, beta, scale, ..inputs };
    let solved: Vec<[Rows; 2]> = (0..chunks.len() * value_heads)
        .into_par_iter()
        .map(|index| {
            let (chunk, head) = (chunks[index / value_heads], index % value_heads);
            let (queries, keys) = (inputs.queries(chunk, head), inputs.keys(chunk, head));
            let (decays, betas) = (inputs.decays(chunk, head), inputs.betas(chunk, head));
            let [of_queries, of_keys] = inputs.scales(chunk, head);
            let between = |i: usize, j: usize| (decays[i] - decays[j]).exp();
            let system = multiply(keys.view(), keys.view().t(), CHUNK, CHUNK);
            let system = system.mapped(|i, j, sum| match j < i && i < chunk.rows {
                true => betas[i] * of_keys[i] * of_keys[j] * sum * between(i, j),
                false => 0.0,
            });
            let mut inverse = Rows::zeros(CHUNK, CHUNK);
            for i in 0..chunk.rows {
                for column in 0..i {
                    let terms = (column..i).map(|j| f64::from(system.row(i)[j]) * f64::from(inverse.row(j)[column]));
                    inverse.data[i * CHUNK + column] = -terms.sum::<f64>() as f32;
                }
                inverse.data[i * CHUNK + i] = 1.0;
            }
            let scores = multiply(queries.view(), keys.view().t(), CHUNK, CHUNK);
            let scores = scores.mapped(|i, j, sum| match j <= i && i < chunk.rows {
                true => of_queries[i] * of_keys[j] * sum * between(i, j),
                false => 0.0,
            });
            [inverse, scores]
        })
        .collect();
    let [mut inverse, mut scores] = ["inverse", "scores"].map(|name| views.store(name));
    for (index, [of_inverse, of_scores]) in solved.iter().enumerate() {
        let (chunk, head) = (chunks[index / value_heads], index % value_heads);
        put(&mut inverse, chunk, value_heads * CHUNK, head, of_inverse);
        put(&mut scores, chunk, value_heads * CHUNK, head, of_scores);
    }
}

/// Returns the decay of a whole chunk.
fn whole(decays: &[f32], chunk: Chunk) -> f32 {
    decays[chunk.rows - 1]
}

pub(super) fn fwd(key: DeltaRuleFwd, p: &delta_rule_fwd_params, views: &mut Views<'_>) {
    let sequences = chunks(views);
    let (key_heads, value_heads) = (p.key_heads as usize, p.value_heads as usize);
    let qkv = views.load("qkv");
    let [decay, beta, scale] = ["decay", "beta", "scale"].map(|name| views.read::<f32>(name));
    let (inverse, scores) = (views.load("inverse"), views.load("scores"));
    let inputs = Inputs { key_heads, value_heads, qkv: &qkv, decay, beta, scale };
    let x = key.x;
    let done: Vec<Vec<[Rows; 3]>> = (0..sequences.len() * value_heads)
        .into_par_iter()
        .map(|index| {
            let head = index % value_heads;
            let mut state = Rows::zeros(D, D);
            let mut of_chunk = |chunk: &Chunk| {
                let chunk = *chunk;
                let (queries, keys) = (inputs.queries(chunk, head), inputs.keys(chunk, head));
                let (decays, betas) = (inputs.decays(chunk, head), inputs.betas(chunk, head));
                let [of_queries, of_keys] = inputs.scales(chunk, head);
                let taken = |all: &[f32]| Rows::of_head(all, chunk, value_heads * CHUNK, head, CHUNK);
                let before = state.clone().rounded(x);
                let read = multiply(keys.view(), before.view(), CHUNK, D);
                let values = inputs.values(chunk, head);
                let change = values
                    .mapped(|i, column, value| betas[i] * (value - decays[i].exp() * of_keys[i] * read.row(i)[column]));
                let v_new = multiply(taken(&inverse).view(), change.rounded(x).view(), CHUNK, D);
                let of_state = multiply(queries.view(), before.view(), CHUNK, D);
                let of_state = of_state.scaled(|i| decays[i].exp() * of_queries[i]);
                let rounded = v_new.clone().rounded(x);
                let o = multiply(taken(&scores).view(), rounded.view(), CHUNK, D).plus(&of_state);
                let last = whole(&decays, chunk);
                let written = v_new.scaled(|i| (last - decays[i]).exp() * of_keys[i]).rounded(x);
                let kept = std::mem::replace(&mut state, Rows::zeros(0, 1)).scaled(|_| last.exp());
                state = multiply(keys.view().t(), written.view(), D, D).plus(&kept);
                [o, rounded, state.clone()]
            };
            sequences[index / value_heads].iter().map(&mut of_chunk).collect()
        })
        .collect();
    let mut o = views.store("o");
    let mut kept = key.keep.then(|| ["v_new", "states"].map(|name| views.store(name)));
    for (index, results) in done.iter().enumerate() {
        let head = index % value_heads;
        for (chunk, [of_o, of_v, of_state]) in sequences[index / value_heads].iter().zip(results) {
            put(&mut o, *chunk, value_heads * D, head, of_o);
            if let Some([v_new, states]) = &mut kept {
                put(v_new, *chunk, value_heads * D, head, of_v);
                if let Some(slot) = chunk.behind {
                    states[(slot * value_heads + head) * D * D..][..D * D].copy_from_slice(&of_state.data);
                }
            }
        }
    }
}

pub(super) fn state_bwd(key: DeltaRuleStateBwd, p: &delta_rule_state_bwd_params, views: &mut Views<'_>) {
    let sequences = chunks(views);
    let (key_heads, value_heads) = (p.key_heads as usize, p.value_heads as usize);
    let (qkv, d_o) = (views.load("qkv"), views.load("d_o"));
    let [decay, beta, scale] = ["decay", "beta", "scale"].map(|name| views.read::<f32>(name));
    let (inverse, scores) = (views.load("inverse"), views.load("scores"));
    let inputs = Inputs { key_heads, value_heads, qkv: &qkv, decay, beta, scale };
    let x = key.x;
    // The gradient of what is written to the state, and that of the state behind the chunk.
    let done: Vec<Vec<[Rows; 2]>> = (0..sequences.len() * value_heads)
        .into_par_iter()
        .map(|index| {
            let head = index % value_heads;
            let mut dstate = Rows::zeros(D, D);
            let mut of_chunk = |chunk: &Chunk| {
                let chunk = *chunk;
                let (queries, keys) = (inputs.queries(chunk, head), inputs.keys(chunk, head));
                let (decays, betas) = (inputs.decays(chunk, head), inputs.betas(chunk, head));
                let [of_queries, of_keys] = inputs.scales(chunk, head);
                let taken = |all: &[f32]| Rows::of_head(all, chunk, value_heads * CHUNK, head, CHUNK);
                let d_o = Rows::of_head(&d_o, chunk, value_heads * D, head, D);
                let last = whole(&decays, chunk);
                let behind = dstate.clone().rounded(x);
                let of_state = multiply(keys.view(), behind.view(), CHUNK, D);
                let of_state = of_state.scaled(|i| (last - decays[i]).exp() * of_keys[i]);
                let dv_new = multiply(taken(&scores).view().t(), d_o.view(), CHUNK, D).plus(&of_state).rounded(x);
                let dvb = multiply(taken(&inverse).view().t(), dv_new.view(), CHUNK, D);
                let read = d_o.scaled(|i| decays[i].exp() * of_queries[i]).rounded(x);
                let taken = dvb.clone().scaled(|i| -(betas[i] * decays[i].exp() * of_keys[i])).rounded(x);
                let after = dstate.clone();
                dstate = multiply(queries.view().t(), read.view(), D, D)
                    .plus(&multiply(keys.view().t(), taken.view(), D, D))
                    .plus(&after.clone().scaled(|_| last.exp()));
                [dvb, after]
            };
            sequences[index / value_heads].iter().rev().map(&mut of_chunk).collect()
        })
        .collect();
    let [mut dvb, mut dstates] = ["dvb", "dstates"].map(|name| views.store(name));
    for (index, results) in done.iter().enumerate() {
        let head = index % value_heads;
        for (chunk, [of_dvb, of_state]) in sequences[index / value_heads].iter().rev().zip(results) {
            put(&mut dvb, *chunk, value_heads * D, head, of_dvb);
            if let Some(slot) = chunk.behind {
                dstates[(slot * value_heads + head) * D * D..][..D * D].copy_from_slice(&of_state.data);
            }
        }
    }
}

/// Gradients of a chunk and a value head: of normalized queries and keys, of values, and of gates.
struct Gradients {
    dq: Rows,
    dk: Rows,
    dv: Rows,
    gates: GateGradients,
}

/// Gradients of `b` and `a` of each token, of `a_log` and `dt_bias`.
struct GateGradients {
    db: Vec<f32>,
    da: Vec<f32>,
    da_log: f32,
    ddt_bias: f32,
}

/// Operands of `delta_rule.bwd` that are a head's, by its name.
struct Saved<'a> {
    scores: &'a [f32],
    v_new: &'a [f32],
    states: &'a [f32],
    d_o: &'a [f32],
    dvb: &'a [f32],
    dstates: &'a [f32],
}

/// Gates of a chunk and a value head: `a` of each token, and the parameters of its decay.
struct Decays<'a> {
    a: &'a [f32],
    a_log: f32,
    dt_bias: f32,
}

fn gradients(
    x: crate::Dtype,
    inputs: &Inputs<'_>,
    saved: &Saved<'_>,
    gates: &Decays<'_>,
    (chunk, head): (Chunk, usize),
) -> Gradients {
    let heads = inputs.value_heads;
    let (queries, keys, values) = (inputs.queries(chunk, head), inputs.keys(chunk, head), inputs.values(chunk, head));
    let (decays, betas) = (inputs.decays(chunk, head), inputs.betas(chunk, head));
    let [of_queries, of_keys] = inputs.scales(chunk, head);
    let of_head = |all: &[f32]| Rows::of_head(all, chunk, heads * D, head, D);
    let (v_new, d_o, dvb) = (of_head(saved.v_new), of_head(saved.d_o), of_head(saved.dvb));
    let scores = Rows::of_head(saved.scores, chunk, heads * CHUNK, head, CHUNK);
    let state = |all: &[f32], slot: Option<usize>| match slot {
        Some(slot) => Rows { columns: D, data: all[(slot * heads + head) * D * D..][..D * D].to_vec() },
        None => Rows::zeros(D, D),
    };
    let (before, dbehind) = (state(saved.states, chunk.before), state(saved.dstates, chunk.behind));
    let between = |i: usize, j: usize| (decays[i] - decays[j]).exp();
    let in_chunk = |i: usize, j: usize| i < chunk.rows && j <= i;

    let of_state = multiply(d_o.view(), before.view().t(), CHUNK, D);
    let dkb = multiply(dvb.view(), before.view().t(), CHUNK, D).scaled(|_| -1.0);
    let of_dstate = multiply(v_new.view(), dbehind.view().t(), CHUNK, D);
    let dscores = multiply(d_o.view(), v_new.view().t(), CHUNK, CHUNK);
    let dsystem = multiply(dvb.view(), v_new.view().t(), CHUNK, CHUNK);
    let dsystem = dsystem.mapped(|i, j, value| if in_chunk(i, j) && j < i { -value } else { 0.0 });
    let dscores = dscores.mapped(|i, j, value| if in_chunk(i, j) { value } else { 0.0 });
    // The system without its step sizes.
    let system = multiply(keys.view(), keys.view().t(), CHUNK, CHUNK)
        .mapped(|i, j, sum| if in_chunk(i, j) && j < i { of_keys[i] * of_keys[j] * sum * between(i, j) } else { 0.0 });
    let decayed = |i: usize, j: usize, value: f32| if in_chunk(i, j) { value * between(i, j) } else { 0.0 };
    let m = dscores.clone().mapped(decayed);
    let b = dsystem.clone().mapped(|i, j, value| betas[i] * decayed(i, j, value));
    let last = whole(&decays, chunk);

    let for_queries = m.clone().mapped(|_, j, value| round_to(x, value * of_keys[j]));
    let dq = multiply(for_queries.view(), keys.view(), CHUNK, D).plus(&of_state.clone().scaled(|i| decays[i].exp()));
    let for_keys = m.mapped(|i, _, value| round_to(x, value * of_queries[i]));
    let both = Rows::zeros(CHUNK, CHUNK).mapped(|i, j, _| round_to(x, (b.row(i)[j] + b.row(j)[i]) * of_keys[j]));
    let dk = multiply(for_keys.view().t(), queries.view(), CHUNK, D)
        .plus(&multiply(both.view(), keys.view(), CHUNK, D))
        .plus(&of_dstate.clone().scaled(|i| (last - decays[i]).exp()))
        .plus(&dkb.clone().scaled(|i| betas[i] * decays[i].exp()));

    // Gradients of the logs of all decays up to a token.
    let mut dlog = [0.0f64; CHUNK];
    let mut dbeta = [0.0f64; CHUNK];
    for i in 0..chunk.rows {
        for j in 0..=i {
            let share = f64::from(dsystem.row(i)[j] * system.row(i)[j]);
            let term = f64::from(dscores.row(i)[j] * scores.row(i)[j]) + f64::from(betas[i]) * share;
            dlog[i] += term;
            dlog[j] -= term;
            dbeta[i] += share;
        }
        let (grown, behind) = (f64::from(decays[i].exp()), f64::from((last - decays[i]).exp()));
        let of_key = f64::from(of_keys[i]) * dot(dkb.row(i), keys.row(i));
        dbeta[i] += dot(dvb.row(i), values.row(i)) + grown * of_key;
        dlog[i] += grown * f64::from(of_queries[i]) * dot(of_state.row(i), queries.row(i));
        dlog[i] += f64::from(betas[i]) * grown * of_key;
        let moved = behind * f64::from(of_keys[i]) * dot(of_dstate.row(i), keys.row(i));
        dlog[i] -= moved;
        dlog[chunk.rows - 1] += moved;
    }
    dlog[chunk.rows - 1] += f64::from(last.exp()) * dot(&dbehind.data, &before.data);

    let dv = dvb.scaled(|i| betas[i]);
    let (dlog, dbeta) = (&dlog[..chunk.rows], &dbeta[..chunk.rows]);
    Gradients { dq, dk, dv, gates: gate_gradients(gates, (&betas, dlog, dbeta)) }
}

/// Returns the gradients of gates, from those of step sizes, and of the logs of all decays up to each token.
fn gate_gradients(gates: &Decays<'_>, (betas, dlog, dbeta): (&[f32], &[f64], &[f64])) -> GateGradients {
    let mut done = GateGradients { db: vec![0.0; CHUNK], da: vec![0.0; CHUNK], da_log: 0.0, ddt_bias: 0.0 };
    let (mut dg, mut da_log, mut ddt_bias) = (0.0, 0.0, 0.0);
    for i in (0..dlog.len()).rev() {
        dg += dlog[i];
        let da = -dg * f64::from(gates.a_log).exp() * sigmoid(gates.a[i] + gates.dt_bias);
        done.da[i] = da as f32;
        ddt_bias += da;
        da_log += dg * log_decay(gates.a[i], gates.a_log, gates.dt_bias);
        let beta = f64::from(betas[i]);
        done.db[i] = (dbeta[i] * beta * (1.0 - beta)) as f32;
    }
    (done.da_log, done.ddt_bias) = (da_log as f32, ddt_bias as f32);
    done
}

/// Returns the gradient of rows, of that of what they are when normalized by these factors, which contain `inside`.
fn unnormalized(rows: &Rows, gradient: Rows, factors: &[f32], inside: f64) -> Rows {
    let dots: Vec<f64> = (0..CHUNK).map(|row| dot(rows.row(row), gradient.row(row))).collect();
    gradient.mapped(|row, column, value| {
        let factor = f64::from(factors[row]);
        let along = dots[row] * factor * factor / (inside * inside);
        (factor * (f64::from(value) - f64::from(rows.row(row)[column]) * along)) as f32
    })
}

pub(super) fn bwd(key: DeltaRuleBwd, p: &delta_rule_bwd_params, views: &mut Views<'_>) {
    let chunks: Vec<Chunk> = chunks(views).concat();
    let (key_heads, value_heads) = (p.key_heads as usize, p.value_heads as usize);
    let (gate_columns, b_column) = (p.gate_columns as usize, p.b_column as usize);
    let (qkv, gates) = (views.load("qkv"), views.load("gates"));
    let (a_log, dt_bias) = views.read::<f32>("rates").split_at(value_heads);
    let [decay, beta, scale] = ["decay", "beta", "scale"].map(|name| views.read::<f32>(name));
    let loaded = ["scores", "v_new", "states", "d_o", "dvb", "dstates"].map(|name| views.load(name));
    let [scores, v_new, states, d_o, dvb, dstates] = &loaded;
    let saved = Saved { scores, v_new, states, d_o, dvb, dstates };
    let inputs = Inputs { key_heads, value_heads, qkv: &qkv, decay, beta, scale };
    let done: Vec<Gradients> = (0..chunks.len() * value_heads)
        .into_par_iter()
        .map(|index| {
            let (chunk, head) = (chunks[index / value_heads], index % value_heads);
            let a = Inputs::column(&gates, chunk, gate_columns, b_column + value_heads + head);
            let gates = Decays { a: &a, a_log: a_log[head], dt_bias: dt_bias[head] };
            gradients(key.x, &inputs, &saved, &gates, (chunk, head))
        })
        .collect();
    let [mut dqkv, mut dgates] = ["dqkv", "dgates"].map(|name| views.store(name));
    let partial = views.write::<f32>("partial");
    partial.fill(0.0);
    let group = value_heads / key_heads;
    for (index, chunk) in chunks.iter().enumerate() {
        let done = &done[index * value_heads..][..value_heads];
        for (head, of_head) in done.iter().enumerate() {
            put(&mut dqkv, *chunk, inputs.stride(), 2 * key_heads + head, &of_head.dv);
            for row in 0..chunk.rows {
                let gates = &mut dgates[(chunk.first + row) * gate_columns + b_column..];
                (gates[head], gates[value_heads + head]) = (of_head.gates.db[row], of_head.gates.da[row]);
            }
            partial[2 * index * value_heads + head] = of_head.gates.da_log;
            partial[(2 * index + 1) * value_heads + head] = of_head.gates.ddt_bias;
        }
        for key_head in 0..key_heads {
            let of_group = &done[key_head * group..][..group];
            let sum = |part: fn(&Gradients) -> &Rows| {
                of_group[1..].iter().fold(part(&of_group[0]).clone(), |sum, head| sum.plus(part(head)))
            };
            let head = key_head * group;
            let [of_queries, of_keys] = inputs.scales(*chunk, head);
            let root = 1.0 / (D as f64).sqrt();
            let dq = unnormalized(&inputs.queries(*chunk, head), sum(|head| &head.dq), &of_queries, root);
            let dk = unnormalized(&inputs.keys(*chunk, head), sum(|head| &head.dk), &of_keys, 1.0);
            put(&mut dqkv, *chunk, inputs.stride(), key_head, &dq);
            put(&mut dqkv, *chunk, inputs.stride(), key_heads + key_head, &dk);
        }
    }
}
