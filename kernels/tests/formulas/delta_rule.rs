use std::ops::Range;

use precast_kernels::abi::{delta_rule_fwd_params, delta_rule_solve_params};

use super::calculus::{dot, matmul, transposed};
use super::launch::Launch;

/// Tokens of a chunk, and elements of a head.
const CHUNK: usize = 64;
const D: usize = 128;

/// Heads of a launch, and its sequences' tokens.
pub struct Heads {
    keys: usize,
    values: usize,
    pub sequences: Vec<Range<usize>>,
}

/// Tokens of a sequence that are computed together.
#[derive(Clone)]
struct Chunk {
    tokens: Range<usize>,
    /// Where the state behind it is kept, if its sequence goes on.
    slot: Option<usize>,
}

impl Heads {
    pub fn new(launch: &Launch, keys: u32, values: u32) -> Self {
        let words = launch.before("sequences");
        let sequences = words.chunks(2).map(|pair| pair[0] as usize..(pair[0] + pair[1]) as usize).collect();
        Self { keys: keys as usize, values: values as usize, sequences }
    }

    fn chunks(sequence: &Range<usize>) -> Vec<Chunk> {
        let end = sequence.end;
        let chunk = |first: usize| Chunk {
            tokens: first..end.min(first + CHUNK),
            slot: (first + CHUNK < end).then_some(first / CHUNK),
        };
        sequence.clone().step_by(CHUNK).map(chunk).collect()
    }

    /// The query, the key and the value that a value head has of a token.
    pub fn parts<'a>(&self, qkv: &'a [f64], token: usize, head: usize) -> [&'a [f64]; 3] {
        let key_head = head * self.keys / self.values;
        [key_head, self.keys + key_head, 2 * self.keys + head]
            .map(|part| &qkv[(token * (2 * self.keys + self.values) + part) * D..][..D])
    }
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `log(1 + exp(x))`.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The factor that normalizes a query or a key.
pub fn factor(head: &[f64]) -> f64 {
    (dot(head, head) + 1e-6).sqrt().recip()
}

pub fn solve(launch: &mut Launch) {
    let p: delta_rule_solve_params = launch.params();
    let heads = Heads::new(launch, p.key_heads, p.value_heads);
    let [qkv, gates, rates] = ["qkv", "gates", "rates"].map(|name| launch.before(name));
    let (a_log, dt_bias) = rates.split_at(heads.values);
    let names = ["decay", "beta", "scale", "inverse", "scores"];
    let [mut decay, mut beta, mut scale, mut inverse, mut scores] = names.map(|name| launch.before(name));
    let gate = |token: usize, column: usize| gates[token * p.gate_columns as usize + p.b_column as usize + column];
    for (chunk, head) in heads
        .sequences
        .iter()
        .flat_map(Heads::chunks)
        .flat_map(|chunk| (0..heads.values).map(move |head| (chunk.clone(), head)))
    {
        let mut sum = 0.0;
        for token in chunk.tokens.clone() {
            let [query, key, _] = heads.parts(&qkv, token, head);
            let at = token * 2 * heads.keys + head * heads.keys / heads.values;
            (scale[at], scale[at + heads.keys]) = (factor(query) / (D as f64).sqrt(), factor(key));
            sum -= a_log[head].exp() * softplus(gate(token, heads.values + head) + dt_bias[head]);
            decay[token * heads.values + head] = sum;
            beta[token * heads.values + head] = sigmoid(gate(token, head));
        }
        // Dot products of tokens at or before another, by what the later one is.
        let n = chunk.tokens.len();
        let sum = |row: usize, column: usize, part: usize| {
            let [row, column] = [row, column].map(|row| chunk.tokens.start + row);
            let ([earlier, later], at) = ([column, row], |token: usize| token * heads.values + head);
            let ([_, key, _], other) = (heads.parts(&qkv, earlier, head), heads.parts(&qkv, later, head)[part]);
            dot(other, key) * factor(other) * factor(key) * (decay[at(later)] - decay[at(earlier)]).exp()
        };
        let matrix =
            |element: &dyn Fn(usize, usize) -> f64| (0..n * n).map(|at| element(at / n, at % n)).collect::<Vec<f64>>();
        let own_scores = matrix(&|i, j| if j <= i { sum(i, j, 0) / (D as f64).sqrt() } else { 0.0 });
        let step_size = |i: usize| beta[(chunk.tokens.start + i) * heads.values + head];
        let system = matrix(&|i, j| if j < i { step_size(i) * sum(i, j, 1) } else { 0.0 });
        let own_inverse = inverse_of(&system, n);
        for (row, token) in chunk.tokens.clone().enumerate() {
            for (all, own) in [(&mut inverse, &own_inverse), (&mut scores, &own_scores)] {
                let to = &mut all[(token * heads.values + head) * CHUNK..][..CHUNK];
                to.fill(0.0);
                to[..n].copy_from_slice(&own[row * n..][..n]);
            }
        }
    }
    for (name, expected) in names.into_iter().zip([decay, beta, scale, inverse, scores]) {
        launch.is(name, &expected);
    }
}

/// The inverse of `I + A`, A strictly lower triangular: `(I - A) (I + A^2) (I + A^4) ...`, as powers from the 64th on
/// are zeros.
fn inverse_of(a: &[f64], n: usize) -> Vec<f64> {
    let times = |a: &[f64], b: &[f64]| matmul(a, &transposed(b, n), n);
    let mut inverse: Vec<f64> = a.iter().map(|element| -element).collect();
    (0..n).for_each(|i| inverse[i * n + i] += 1.0);
    let mut power = a.to_vec();
    for _ in 1..CHUNK.ilog2() {
        power = times(&power, &power);
        let more = times(&inverse, &power);
        inverse.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    inverse
}

pub fn fwd(launch: &mut Launch) {
    let p: delta_rule_fwd_params = launch.params();
    let heads = Heads::new(launch, p.key_heads, p.value_heads);
    let names = ["qkv", "decay", "beta", "scale", "inverse", "scores"];
    let [qkv, decay, beta, scale, inverse, scores] = names.map(|name| launch.before(name));
    let keeps = launch.flag("keep");
    let mut o = launch.before("o");
    let [mut v_new, mut states] = ["v_new", "states"].map(|name| if keeps { launch.before(name) } else { vec![] });
    for (sequence, head) in
        heads.sequences.iter().flat_map(|sequence| (0..heads.values).map(move |head| (sequence, head)))
    {
        // The transpose: a row for each column of a value.
        let mut state = vec![0.0; D * D];
        for Chunk { tokens, slot } in Heads::chunks(sequence) {
            let at = |token: usize| token * heads.values + head;
            let scaled = |part: usize| -> Vec<f64> {
                let of_token = |token: usize| {
                    let factor = scale[(2 * token + part) * heads.keys + head * heads.keys / heads.values];
                    heads.parts(&qkv, token, head)[part].iter().map(move |element| factor * element)
                };
                tokens.clone().flat_map(of_token).collect()
            };
            let (queries, keys) = (scaled(0), scaled(1));
            let (of_queries, of_keys) = (matmul(&queries, &state, D), matmul(&keys, &state, D));
            let change = tokens.clone().enumerate().flat_map(|(row, token)| {
                let (grown, beta, of_keys) = (decay[at(token)].exp(), beta[at(token)], &of_keys[row * D..][..D]);
                let values = heads.parts(&qkv, token, head)[2].iter().zip(of_keys);
                values.map(move |(value, read)| beta * (value - grown * read))
            });
            let mixed = |all: &[f64], rows: &[f64]| {
                let factors = tokens.clone().flat_map(|token| all[at(token) * CHUNK..][..tokens.len()].to_vec());
                matmul(&factors.collect::<Vec<f64>>(), &transposed(rows, D), tokens.len())
            };
            let new = mixed(&inverse, &change.collect::<Vec<f64>>());
            let of_scores = mixed(&scores, &new);
            let last = decay[at(tokens.end - 1)];
            state.iter_mut().for_each(|element| *element *= last.exp());
            for (row, token) in tokens.clone().enumerate() {
                let kept = (last - decay[at(token)]).exp();
                let (key, written) = (&keys[row * D..][..D], &new[row * D..][..D]);
                for (column, written) in state.chunks_mut(D).zip(written) {
                    column.iter_mut().zip(key).for_each(|(element, key)| *element += kept * key * written);
                }
                let outputs = o[at(token) * D..][..D].iter_mut().zip(&of_queries[row * D..]).zip(&of_scores[row * D..]);
                outputs.for_each(|((o, of_state), of_chunk)| *o = decay[at(token)].exp() * of_state + of_chunk);
                if keeps {
                    v_new[at(token) * D..][..D].copy_from_slice(written);
                }
            }
            if let Some(slot) = slot.filter(|_| keeps) {
                states[(slot * heads.values + head) * D * D..][..D * D].copy_from_slice(&transposed(&state, D));
            }
        }
    }
    launch.is("o", &o);
    if keeps {
        launch.is("v_new", &v_new);
        launch.is("states", &states);
    }
}
