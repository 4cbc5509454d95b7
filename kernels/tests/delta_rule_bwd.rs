//! The gated delta rule by chunks, as its four operations compute it one after the other, against the recurrence from
//! token to token in f64: gradients are differences of that.

use precast_kernels::abi::{
    delta_rule_bwd_params, delta_rule_fwd_params, delta_rule_solve_params, delta_rule_state_bwd_params,
};
use precast_kernels::host::Buffer;
use precast_kernels::sequences;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::formulas::calculus::{dot, slopes};
use crate::formulas::launch::Launch;

const D: usize = 128;
/// A single token, chunks that are almost full, full, or just more, and several.
const LENGTHS: [u32; 5] = [1, 63, 64, 65, 515];
const TOKENS: u32 = 1 + 63 + 64 + 65 + 515;
/// One more than there are: an empty one.
const COUNT: u32 = LENGTHS.len() as u32 + 1;
const SEED: u64 = 7;

#[derive(Clone)]
struct Inputs {
    qkv: Vec<f64>,
    gates: Vec<f64>,
    a_log: Vec<f64>,
    dt_bias: Vec<f64>,
}

/// Outputs [tokens, value_heads, 128] of the rule, whose state each token moves.
fn recurrence(inputs: &Inputs, key_heads: usize, value_heads: usize) -> Vec<f64> {
    let mut o = Vec::new();
    let mut states = vec![[[0.0; D]; D]; value_heads];
    let starts: Vec<u32> = LENGTHS.iter().scan(0, |end, length| Some(std::mem::replace(end, *end + length))).collect();
    for token in 0..TOKENS as usize {
        if starts.contains(&(token as u32)) {
            states = vec![[[0.0; D]; D]; value_heads];
        }
        for (head, state) in states.iter_mut().enumerate() {
            let row = |column: usize| &inputs.qkv[(token * (2 * key_heads + value_heads) + column) * D..][..D];
            let key_head = head / (value_heads / key_heads);
            let normal = |row: &[f64]| row.iter().map(|x| x / (dot(row, row) + 1e-6).sqrt()).collect::<Vec<_>>();
            let (q, k, v) = (normal(row(key_head)), normal(row(key_heads + key_head)), row(2 * key_heads + head));
            let gates = &inputs.gates[token * 2 * value_heads..][..2 * value_heads];
            let beta = 1.0 / (1.0 + (-gates[head]).exp());
            let softplus = (gates[value_heads + head] + inputs.dt_bias[head]).exp().ln_1p();
            let kept = (-inputs.a_log[head].exp() * softplus).exp();
            let mut predicted = [0.0; D];
            for (row, k) in state.iter_mut().zip(&k) {
                row.iter_mut().for_each(|x| *x *= kept);
                predicted.iter_mut().zip(row).for_each(|(sum, x)| *sum += k * *x);
            }
            let mut out = [0.0; D];
            for (row, (k, q)) in state.iter_mut().zip(k.iter().zip(&q)) {
                for (column, x) in row.iter_mut().enumerate() {
                    *x += k * beta * (v[column] - predicted[column]);
                    out[column] += q / (D as f64).sqrt() * *x;
                }
            }
            o.extend(out);
        }
    }
    o
}

/// Makes a launch over sequences of `LENGTHS`, of operands that others have.
fn launch<P: bytemuck::Pod>(op: &str, params: P, from: &[(&Launch, &[&str])]) -> Launch {
    let mut launch = Launch::of(op, params, SEED);
    let index = launch.find("sequences").expect("sequences");
    launch.case.before[index] = Buffer::from(bytemuck::cast_slice(&sequences(&LENGTHS, COUNT as usize)));
    for (other, names) in from {
        for name in *names {
            launch.set(name, &other.after(name));
        }
    }
    launch
}

/// Distance of a gradient from the slopes of a loss along random signs of `within`, of the slopes.
fn distance(found: &[f64], at: &[f64], within: impl Fn(usize) -> bool, loss: impl Fn(&[f64]) -> f64) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for direction in 0..3 {
        let mut rng = Pcg64Mcg::seed_from_u64(direction);
        let sign = |index: usize| if within(index) { if rng.random() { 1.0 } else { -1.0 } } else { 0.0 };
        let signs: Vec<f64> = (0..at.len()).map(sign).collect();
        let slope = slopes(at, &signs, |at| vec![loss(at)])[0];
        difference += (dot(found, &signs) - slope).powi(2);
        norm += slope.powi(2);
    }
    (difference / norm).sqrt()
}

/// Runs the four operations with this decay, and compares the output and each gradient.
fn check(key_heads: u32, value_heads: u32, a_log: f64) {
    let (tokens, count, seq_len, gate_columns) = (TOKENS, COUNT, LENGTHS[4], 2 * value_heads);
    let mut solve = launch(
        "delta_rule.solve{x=f32}",
        delta_rule_solve_params { tokens, count, seq_len, key_heads, value_heads, gate_columns, ..Default::default() },
        &[],
    );
    let mut rates = solve.before("rates");
    rates[..value_heads as usize].fill(f64::from(a_log as f32));
    solve.set("rates", &rates);
    let common: &[&str] = &["qkv", "decay", "beta", "scale"];
    let fwd = launch(
        "delta_rule.fwd{keep=true,x=f32}",
        delta_rule_fwd_params { tokens, count, seq_len, key_heads, value_heads, ..Default::default() },
        &[(&solve, common), (&solve, &["inverse", "scores"])],
    );
    let state_bwd = launch(
        "delta_rule.state_bwd{x=f32}",
        delta_rule_state_bwd_params { tokens, count, seq_len, key_heads, value_heads, ..Default::default() },
        &[(&solve, common), (&solve, &["inverse", "scores"])],
    );
    let chunks = tokens / 64 + count;
    let params = delta_rule_bwd_params {
        tokens,
        count,
        seq_len,
        key_heads,
        value_heads,
        gate_columns,
        chunks,
        ..Default::default()
    };
    let bwd = launch(
        "delta_rule.bwd{x=f32}",
        params,
        &[
            (&solve, common),
            (&solve, &["gates", "rates", "scores"]),
            (&fwd, &["v_new", "states"]),
            (&state_bwd, &["d_o", "dvb", "dstates"]),
        ],
    );

    let [qkv, gates, rates] = ["qkv", "gates", "rates"].map(|name| solve.before(name));
    let (a_log, dt_bias) = rates.split_at(value_heads as usize);
    let at = Inputs { qkv, gates, a_log: a_log.to_vec(), dt_bias: dt_bias.to_vec() };
    let (key_heads, value_heads) = (key_heads as usize, value_heads as usize);
    let (o, expected) = (fwd.after("o"), recurrence(&at, key_heads, value_heads));
    let d_o = state_bwd.before("d_o");
    let loss = |inputs: &Inputs| dot(&recurrence(inputs, key_heads, value_heads), &d_o);
    let difference: Vec<f64> = o.iter().zip(&expected).map(|(a, b)| a - b).collect();
    let mut found = vec![("o", (dot(&difference, &difference) / dot(&expected, &expected)).sqrt())];

    let dqkv = bwd.after("dqkv");
    let part = |index: usize| (index / D % (2 * key_heads + value_heads) / key_heads).min(2);
    for (which, name) in ["q", "k", "v"].into_iter().enumerate() {
        let of_qkv = |qkv: &[f64]| loss(&Inputs { qkv: qkv.to_vec(), ..at.clone() });
        found.push((name, distance(&dqkv, &at.qkv, |index| part(index) == which, of_qkv)));
    }
    let dgates = bwd.after("dgates");
    for (which, name) in ["b", "a"].into_iter().enumerate() {
        let of_gates = |gates: &[f64]| loss(&Inputs { gates: gates.to_vec(), ..at.clone() });
        found.push((name, distance(&dgates, &at.gates, |index| index / value_heads % 2 == which, of_gates)));
    }
    let partial = bwd.after("partial");
    let sum = |part: usize| -> Vec<f64> {
        let chunks = || partial.chunks(2 * value_heads);
        (0..value_heads).map(|head| chunks().map(|chunk| chunk[part * value_heads + head]).sum()).collect()
    };
    let of_a_log = |a_log: &[f64]| loss(&Inputs { a_log: a_log.to_vec(), ..at.clone() });
    found.push(("a_log", distance(&sum(0), &at.a_log, |_| true, of_a_log)));
    let of_dt_bias = |dt_bias: &[f64]| loss(&Inputs { dt_bias: dt_bias.to_vec(), ..at.clone() });
    found.push(("dt_bias", distance(&sum(1), &at.dt_bias, |_| true, of_dt_bias)));
    // Sums over all tokens cancel, and f32 rounds them by more than a share of 1e-5.
    for (name, distance) in found {
        assert!(distance < 1e-4, "{name} is {distance:e} from the recurrence");
    }
}

#[test]
fn chunks_are_the_recurrence() {
    check(1, 4, -1.0);
    for a_log in [-4.0, -1.0, 1.5] {
        check(2, 2, a_log);
        check(1, 2, a_log);
    }
}
