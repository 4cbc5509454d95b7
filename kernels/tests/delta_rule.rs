//! The delta rule by chunks against its recurrence, token by token in f64: references of `solve` and `fwd`, one behind
//! the other.

use precast_kernels::abi::{delta_rule_fwd_params, delta_rule_solve_params};
use precast_kernels::{host::Buffer, sequences};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::formulas::calculus::dot;
use crate::formulas::delta_rule::{Heads, factor, sigmoid, softplus};
use crate::formulas::launch::Launch;

/// A single token, chunks that are almost full, full, or just more, and several.
const LENGTHS: [u32; 5] = [1, 63, 64, 65, 515];
const D: usize = 128;

/// The logs of the smallest and the largest decay of a token, negated.
type Decays = [f64; 2];

fn list(launch: &mut Launch) {
    let index = launch.find("sequences").expect("sequences");
    launch.case.before[index] = Buffer::from(bytemuck::cast_slice(&sequences(&LENGTHS, LENGTHS.len())));
}

fn solved(key_heads: u32, value_heads: u32, [least, most]: Decays, seed: u64) -> Launch {
    let params = delta_rule_solve_params {
        tokens: LENGTHS.iter().sum(),
        count: LENGTHS.len() as u32,
        seq_len: LENGTHS[4],
        key_heads,
        value_heads,
        gate_columns: 2 * value_heads,
        ..Default::default()
    };
    let mut launch = Launch::of("delta_rule.solve{x=f32}", params, seed);
    list(&mut launch);
    launch.set("rates", &vec![0.0; 2 * value_heads as usize]);
    let (mut rng, mut gates) = (Pcg64Mcg::seed_from_u64(seed), launch.before("gates"));
    for row in gates.chunks_mut(2 * value_heads as usize) {
        for a in &mut row[value_heads as usize..] {
            let log = least * (most / least).powf(rng.random::<f64>());
            *a = log.exp_m1().ln(); // softplus of which is `log`
        }
    }
    launch.set("gates", &gates);
    launch
}

/// Outputs by the recurrence.
fn recurrence(launch: &Launch, key_heads: u32, value_heads: u32) -> Vec<f64> {
    let heads = Heads::new(launch, key_heads, value_heads);
    let ([qkv, gates], value_heads) = (["qkv", "gates"].map(|name| launch.before(name)), value_heads as usize);
    let mut o = vec![0.0; qkv.len() / (2 * key_heads as usize + value_heads) * value_heads];
    for (sequence, head) in
        heads.sequences.iter().flat_map(|sequence| (0..value_heads).map(move |head| (sequence, head)))
    {
        // The transpose: a row for each column of a value.
        let mut state = vec![0.0; D * D];
        for token in sequence.clone() {
            let [query, key, value] = heads.parts(&qkv, token, head);
            let (of_query, of_key) = (factor(query) / (D as f64).sqrt(), factor(key));
            let gate = |part: usize| gates[(2 * token + part) * value_heads + head];
            let (beta, decay) = (sigmoid(gate(0)), (-softplus(gate(1))).exp());
            for (column, row) in state.chunks_mut(D).enumerate() {
                row.iter_mut().for_each(|element| *element *= decay);
                let change = beta * (value[column] - of_key * dot(row, key));
                row.iter_mut().zip(key).for_each(|(element, key)| *element += of_key * key * change);
                o[(token * value_heads + head) * D + column] = of_query * dot(row, query);
            }
        }
    }
    o
}

#[test]
fn chunks_are_the_recurrence() {
    for (key_heads, value_heads) in [(2, 2), (1, 2), (1, 4)] {
        for (seed, decays) in (0..).zip([[1e-4, 20.0], [1e-4, 1e-3], [15.0, 20.0]]) {
            let solved = solved(key_heads, value_heads, decays, seed);
            let params = delta_rule_fwd_params {
                tokens: LENGTHS.iter().sum(),
                count: LENGTHS.len() as u32,
                seq_len: LENGTHS[4],
                key_heads,
                value_heads,
                ..Default::default()
            };
            let mut launch = Launch::of("delta_rule.fwd{keep=false,x=f32}", params, seed);
            list(&mut launch);
            launch.set("qkv", &solved.before("qkv"));
            for name in ["decay", "beta", "scale", "inverse", "scores"] {
                launch.set(name, &solved.after(name));
            }
            launch.is("o", &recurrence(&solved, key_heads, value_heads));
        }
    }
}
