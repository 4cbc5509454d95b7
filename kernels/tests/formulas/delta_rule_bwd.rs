//! The gated delta rule backward, chunk by chunk.

use precast_kernels::abi::{delta_rule_bwd_params, delta_rule_state_bwd_params};

use super::calculus::{dot, matmul, transposed};
use super::launch::Launch;

const CHUNK: usize = 64;
const D: usize = 128;

/// Tokens of a sequence that are computed together.
struct Chunk {
    first: usize,
    rows: usize,
    before: Option<usize>,
    behind: Option<usize>,
}

/// Returns the chunks of each sequence. The state behind one, if another follows, has the number of full chunks that
/// fit before its first token.
fn chunks(launch: &Launch) -> Vec<Vec<Chunk>> {
    let of_sequence = |pair: &[f64]| {
        let (begin, length) = (pair[0] as usize, pair[1] as usize);
        let chunk = |index: usize| {
            let first = begin + index * CHUNK;
            let rows = CHUNK.min(begin + length - first);
            let before = (index > 0).then(|| first / CHUNK - 1);
            Chunk { first, rows, before, behind: (first + rows < begin + length).then_some(first / CHUNK) }
        };
        (0..length.div_ceil(CHUNK)).map(chunk).collect()
    };
    launch.before("sequences").chunks(2).map(of_sequence).collect()
}

struct Heads {
    keys: usize,
    values: usize,
}

impl Heads {
    fn new(keys: u32, values: u32) -> Self {
        Self { keys: keys as usize, values: values as usize }
    }

    fn key_head(&self, head: usize) -> usize {
        head * self.keys / self.values
    }

    /// The query, the key and the value of a token.
    fn of<'a>(&self, qkv: &'a [f64], token: usize, head: usize) -> [&'a [f64]; 3] {
        let heads = [self.key_head(head), self.keys + self.key_head(head), 2 * self.keys + head];
        heads.map(|head| &qkv[(token * (2 * self.keys + self.values) + head) * D..][..D])
    }

    /// Rows of a chunk of what has `columns` for each token and value head.
    fn rows(&self, all: &[f64], chunk: &Chunk, head: usize, columns: usize) -> Vec<f64> {
        let tokens = chunk.first..chunk.first + chunk.rows;
        tokens.flat_map(|token| &all[(token * self.values + head) * columns..][..columns]).copied().collect()
    }

    /// A state; zeros if there is none.
    fn state(&self, all: &[f64], slot: Option<usize>, head: usize) -> Vec<f64> {
        slot.map_or(vec![0.0; D * D], |slot| all[(slot * self.values + head) * D * D..][..D * D].to_vec())
    }
}

fn scaled(row: &[f64], factor: f64) -> Vec<f64> {
    row.iter().map(|value| value * factor).collect()
}

/// The loss `o . do` of a rule in which inverse and scores are given: of what is written to the states, `beta v`, and
/// of what is added to the states behind chunks. It is linear in both.
pub fn state_bwd(launch: &mut Launch) {
    let delta_rule_state_bwd_params { key_heads, value_heads, .. } = launch.params();
    let heads = Heads::new(key_heads, value_heads);
    let [qkv, decay, beta, scale] = ["qkv", "decay", "beta", "scale"].map(|name| launch.before(name));
    let [inverse, scores, d_o] = ["inverse", "scores", "d_o"].map(|name| launch.before(name));
    launch.set("dstates", &vec![0.0; launch.before("dstates").len()]);
    let sequences = chunks(launch);
    let of_head = |written: &[f64], added: &[f64], sequence: &[Chunk], head: usize| -> f64 {
        let (mut state, mut loss) = (vec![0.0; D * D], 0.0); // transposed
        for chunk in sequence {
            let token = |row: usize| chunk.first + row;
            let scale = |row: usize, part: usize| scale[(token(row) * 2 + part) * heads.keys + heads.key_head(head)];
            let [queries, keys] = [0, 1].map(|part| {
                let row = |row: usize| scaled(heads.of(&qkv, token(row), head)[part], scale(row, part));
                (0..chunk.rows).flat_map(row).collect::<Vec<_>>()
            });
            let gates = |all| heads.rows(all, chunk, head, 1);
            let (decays, betas) = (gates(&decay), gates(&beta));
            let square = |all: &[f64]| -> Vec<f64> {
                let rows = heads.rows(all, chunk, head, CHUNK);
                rows.chunks(CHUNK).flat_map(|row| row[..chunk.rows].to_vec()).collect()
            };
            let (read, predicted) = (matmul(&queries, &state, D), matmul(&keys, &state, D));
            let mut change = heads.rows(written, chunk, head, D);
            for (n, value) in change.iter_mut().enumerate() {
                *value -= betas[n / D] * decays[n / D].exp() * predicted[n];
            }
            let v_new = matmul(&square(&inverse), &transposed(&change, D), chunk.rows);
            let of_scores = matmul(&square(&scores), &transposed(&v_new, D), chunk.rows);
            let o = (0..read.len()).map(|n| decays[n / D].exp() * read[n] + of_scores[n]).collect::<Vec<_>>();
            loss += dot(&o, &heads.rows(&d_o, chunk, head, D));
            let last = decays[chunk.rows - 1];
            let kept: Vec<f64> = (0..keys.len()).map(|n| (last - decays[n / D]).exp() * keys[n]).collect();
            let update = matmul(&transposed(&v_new, D), &transposed(&kept, D), chunk.rows);
            let added = transposed(&heads.state(added, chunk.behind, head), D);
            state = (0..D * D).map(|n| last.exp() * state[n] + update[n] + added[n]).collect();
        }
        loss
    };
    let loss = |written: &[f64], added: &[f64]| -> f64 {
        let all = sequences.iter().flat_map(|sequence| (0..heads.values).map(move |head| (sequence, head)));
        all.map(|(sequence, head)| of_head(written, added, sequence, head)).sum()
    };
    let (written, added) = (vec![0.0; d_o.len()], vec![0.0; launch.before("dstates").len()]);
    launch.is_gradient("dvb", &written, |written| vec![loss(written, &added)]);
    launch.is_gradient("dstates", &added, |added| vec![loss(&written, added)]);
}

/// `[beta, g]` of a token and a value head, of `b`, `a`, `a_log` and `dt_bias`.
fn gates(b: f64, a: f64, a_log: f64, dt_bias: f64) -> [f64; 2] {
    [1.0 / (1.0 + (-b).exp()), -a_log.exp() * (a + dt_bias).exp().ln_1p()]
}

/// A query or a key, normalized.
fn normal(row: &[f64], inside: f64) -> Vec<f64> {
    scaled(row, inside / (dot(row, row) + 1e-6).sqrt())
}

/// Constants of a chunk and a value head: queries, keys, values and gates do not change them.
struct Fixed {
    decay: Vec<f64>,
    /// `do S^T`, `X S^T` and `v_new dS'^T`.
    read: Vec<f64>,
    taken: Vec<f64>,
    written: Vec<f64>,
    dvb: Vec<f64>,
    dscores: Vec<f64>,
    dsystem: Vec<f64>,
    /// `<dS', S>`.
    kept: f64,
}

impl Fixed {
    fn new(launch: &Launch, heads: &Heads, chunk: &Chunk, head: usize) -> Self {
        let [v_new, d_o, dvb] = ["v_new", "d_o", "dvb"].map(|name| heads.rows(&launch.before(name), chunk, head, D));
        let before = heads.state(&launch.before("states"), chunk.before, head);
        let behind = heads.state(&launch.before("dstates"), chunk.behind, head);
        Self {
            decay: heads.rows(&launch.before("decay"), chunk, head, 1),
            read: matmul(&d_o, &before, D),
            taken: matmul(&dvb, &before, D),
            written: matmul(&v_new, &behind, D),
            dscores: matmul(&d_o, &v_new, D),
            dsystem: matmul(&dvb, &v_new, D),
            kept: dot(&behind, &before),
            dvb,
        }
    }

    /// The Lagrangian of a chunk: the loss of its outputs and of the state behind it, and what `(I + A) v_new` lacks of
    /// `beta (v - exp(G) k S)` times its multiplier X. v_new and X hold it still, so its slopes are the loss's.
    fn lagrangian(&self, [queries, keys, values]: &[Vec<Vec<f64>>; 3], beta: &[f64], decay: &[f64]) -> f64 {
        let (rows, last) = (decay.len(), decay[decay.len() - 1]);
        let of_row = |i: usize| {
            let at = |all: &[f64]| all[i * D..][..D].to_vec();
            let grown = decay[i].exp();
            let of_states = grown * dot(&queries[i], &at(&self.read))
                - beta[i] * grown * dot(&keys[i], &at(&self.taken))
                + beta[i] * dot(&values[i], &at(&self.dvb))
                + (last - decay[i]).exp() * dot(&keys[i], &at(&self.written));
            let of_pair = |j: usize| {
                let between = (decay[i] - decay[j]).exp();
                let score = self.dscores[i * rows + j] * dot(&queries[i], &keys[j]);
                let system = if j < i { self.dsystem[i * rows + j] * beta[i] * dot(&keys[i], &keys[j]) } else { 0.0 };
                between * (score - system)
            };
            of_states + (0..=i).map(of_pair).sum::<f64>()
        };
        last.exp() * self.kept + (0..rows).map(of_row).sum::<f64>()
    }
}

/// Inputs that a loss is differentiated by; `parameters` of each chunk, `[chunks, 2, value_heads]`.
struct Inputs<'a> {
    qkv: &'a [f64],
    gates: &'a [f64],
    parameters: &'a [f64],
}

/// Sizes of a row of gates.
struct Columns {
    all: usize,
    b: usize,
}

impl Columns {
    fn gates(&self, heads: &Heads, inputs: &Inputs<'_>, (chunk, head): (usize, usize), token: usize) -> [f64; 2] {
        let parameter = |part: usize| inputs.parameters[(2 * chunk + part) * heads.values + head];
        let b = token * self.all + self.b + head;
        gates(inputs.gates[b], inputs.gates[b + heads.values], parameter(0), parameter(1))
    }
}

/// Normalized queries and keys, and values, of a chunk.
fn operands(heads: &Heads, qkv: &[f64], chunk: &Chunk, head: usize) -> [Vec<Vec<f64>>; 3] {
    [0, 1, 2].map(|part| {
        let row = |token: usize| {
            let row = heads.of(qkv, token, head)[part];
            [normal(row, 1.0 / (D as f64).sqrt()), normal(row, 1.0), row.to_vec()][part].clone()
        };
        (chunk.first..chunk.first + chunk.rows).map(row).collect()
    })
}

/// Gives the operands that follow from queries, keys and gates: all but the decays.
fn set(launch: &mut Launch, heads: &Heads, columns: &Columns, chunks: &[Chunk]) {
    let (qkv, gates, decay) = (launch.before("qkv"), launch.before("gates"), launch.before("decay"));
    let inputs = Inputs { qkv: &qkv, gates: &gates, parameters: &launch.before("rates") };
    let [mut beta, mut scale, mut scores] = ["beta", "scale", "scores"].map(|name| launch.before(name));
    let all = chunks.iter().flat_map(|chunk| (0..heads.values).map(move |head| (chunk, head)));
    for (chunk, head) in all {
        let [queries, keys, _] = operands(heads, &qkv, chunk, head);
        for i in 0..chunk.rows {
            let gate = (chunk.first + i) * heads.values + head;
            beta[gate] = columns.gates(heads, &inputs, (0, head), chunk.first + i)[0];
            for (part, normal) in [&queries[i], &keys[i]].into_iter().enumerate() {
                let raw = heads.of(&qkv, chunk.first + i, head)[part];
                scale[((chunk.first + i) * 2 + part) * heads.keys + heads.key_head(head)] = normal[0] / raw[0];
            }
            for j in 0..=i {
                let between = (decay[gate] - decay[(chunk.first + j) * heads.values + head]).exp();
                scores[gate * CHUNK + j] = dot(&queries[i], &keys[j]) * between;
            }
        }
    }
    launch.set("beta", &beta);
    launch.set("scale", &scale);
    launch.set("scores", &scores);
    launch.set("dgates", &vec![0.0; gates.len()]);
}

pub fn bwd(launch: &mut Launch) {
    let delta_rule_bwd_params { key_heads, value_heads, gate_columns, b_column, chunks: most, .. } = launch.params();
    let (heads, columns) =
        (Heads::new(key_heads, value_heads), Columns { all: gate_columns as usize, b: b_column as usize });
    let chunks: Vec<Chunk> = chunks(launch).into_iter().flatten().collect();
    set(launch, &heads, &columns, &chunks);
    let (qkv, gates) = (launch.before("qkv"), launch.before("gates"));
    let parameters = launch.before("rates").repeat(most as usize);
    let at = Inputs { qkv: &qkv, gates: &gates, parameters: &parameters };
    let fixed: Vec<Fixed> = chunks
        .iter()
        .flat_map(|chunk| (0..heads.values).map(move |head| (chunk, head)))
        .map(|(chunk, head)| Fixed::new(launch, &heads, chunk, head))
        .collect();
    let of_head = |inputs: &Inputs<'_>, index: usize, head: usize| {
        let (chunk, fixed) = (&chunks[index], &fixed[index * heads.values + head]);
        let tokens = chunk.first..chunk.first + chunk.rows;
        let all = tokens.map(|token| [inputs, &at].map(|inputs| columns.gates(&heads, inputs, (index, head), token)));
        // Decays are drawn: they move by what gates move.
        let (mut beta, mut decay, mut moved) = (Vec::new(), Vec::new(), 0.0);
        for ([[own, g], [_, before]], drawn) in all.zip(&fixed.decay) {
            moved += g - before;
            beta.push(own);
            decay.push(drawn + moved);
        }
        fixed.lagrangian(&operands(&heads, inputs.qkv, chunk, head), &beta, &decay)
    };
    let loss = |inputs: Inputs<'_>| {
        let of_chunk = |index: usize| (0..heads.values).map(|head| of_head(&inputs, index, head)).sum::<f64>();
        vec![(0..chunks.len()).map(of_chunk).sum()]
    };
    launch.is_gradient("dqkv", &qkv, |qkv| loss(Inputs { qkv, ..at }));
    launch.is_gradient("dgates", &gates, |gates| loss(Inputs { gates, ..at }));
    launch.is_gradient("partial", &parameters, |parameters| loss(Inputs { parameters, ..at }));
}
