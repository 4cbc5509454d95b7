use precast_kernels::abi::{IDLE_SLOT, delta_rule_decode_params};

use super::calculus::dot;
use super::delta_rule::{factor, sigmoid, softplus};
use super::launch::Launch;

/// Tokens of a chunk, and elements of a head.
const CHUNK: usize = 64;
const D: usize = 128;

/// Matrices that slots keep of their heads, one behind the other, by their name.
struct Pool {
    name: &'static str,
    all: Vec<f64>,
    heads: usize,
    elems: usize,
}

impl Pool {
    fn new(launch: &Launch, name: &'static str, heads: usize, elems: usize) -> Self {
        Self { name, all: launch.before(name), heads, elems }
    }

    fn of(&mut self, slot: usize, head: usize) -> &mut [f64] {
        &mut self.all[(slot * self.heads + head) * self.elems..][..self.elems]
    }
}

/// Adds a row, times a factor.
fn add(sums: &mut [f64], factor: f64, row: &[f64]) {
    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += factor * value);
}

/// Sums rows of a matrix, each times a factor.
fn mix(factors: &[f64], rows: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; D];
    factors.iter().zip(rows.chunks(D)).for_each(|(factor, row)| add(&mut sums, *factor, row));
    sums
}

/// Index in a rounded state: `mma`'s operand b of 16 rows and 16 columns, a lane's eight elements side by side.
fn fragment_index(row: usize, column: usize) -> usize {
    let (lane, half_row, half_column) = (column % 8 * 4 + row % 8 / 2, row / 8 % 2, column / 8 % 2);
    ((column / 16 * 8 + row / 16) * 32 + lane) * 8 + half_column * 4 + half_row * 2 + row % 2
}

/// A rounded state, row by row.
fn in_rows(rounded: &[f64]) -> Vec<f64> {
    (0..D * D).map(|index| rounded[fragment_index(index / D, index % D)]).collect()
}

pub fn decode(launch: &mut Launch) {
    let p: delta_rule_decode_params = launch.params();
    let (key_heads, value_heads) = (p.key_heads as usize, p.value_heads as usize);
    let [qkv, gates, rates, slots, positions] =
        ["qkv", "gates", "rates", "slot", "position"].map(|name| launch.before(name));
    let of_values =
        [("states", D * D), ("rounded", D * D), ("decay", CHUNK), ("inverse", CHUNK * CHUNK), ("change", CHUNK * D)];
    let [mut states, mut rounded, mut decay, mut inverse, mut change] =
        of_values.map(|(name, elems)| Pool::new(launch, name, value_heads, elems));
    let [mut keys, mut scale] =
        [("keys", CHUNK * D), ("scale", CHUNK)].map(|(name, elems)| Pool::new(launch, name, key_heads, elems));
    let mut o = Vec::new();
    for (row, (slot, position)) in slots.iter().zip(&positions).enumerate() {
        if launch.goes("idle", *slot == f64::from(IDLE_SLOT)) {
            o.extend(vec![0.0; value_heads * D]);
            continue;
        }
        let (slot, position) = (*slot as usize, *position as usize);
        let (at, has_state) = (position % CHUNK, launch.goes("a later chunk", position >= CHUNK));
        let head = |index: usize| &qkv[(row * (2 * key_heads + value_heads) + index) * D..][..D];
        let gate = |part: usize, head: usize| {
            gates[row * p.gate_columns as usize + p.b_column as usize + part * value_heads + head]
        };
        for key_head in 0..key_heads {
            keys.of(slot, key_head)[at * D..][..D].copy_from_slice(head(key_heads + key_head));
            scale.of(slot, key_head)[at] = factor(head(key_heads + key_head));
        }
        for value_head in 0..value_heads {
            let key_head = value_head * key_heads / value_heads;
            let (query, key, value) = (head(key_head), head(key_heads + key_head), head(2 * key_heads + value_head));
            let (keys, scale) = (keys.of(slot, key_head), scale.of(slot, key_head));
            let (states, rounded) = (states.of(slot, value_head), rounded.of(slot, value_head));
            let decay = decay.of(slot, value_head);
            let (inverse, change) = (inverse.of(slot, value_head), change.of(slot, value_head));
            let before = if at > 0 { decay[at - 1] } else { 0.0 };
            decay[at] =
                before - rates[value_head].exp() * softplus(gate(1, value_head) + rates[value_heads + value_head]);
            let (beta, grown) = (sigmoid(gate(0, value_head)), decay[at].exp());
            let weighted = |head: &[f64], j: usize| {
                dot(head, &keys[j * D..][..D]) * factor(head) * scale[j] * (decay[at] - decay[j]).exp()
            };

            // Row `at` of (I + A)^-1 is e - A (I + A)^-1.
            let mut own = vec![0.0; CHUNK];
            own[at] = 1.0;
            for j in 0..at {
                add(&mut own[..=j], -beta * weighted(key, j), &inverse[j * CHUNK..][..=j]);
            }
            inverse[at * CHUNK..][..CHUNK].copy_from_slice(&own);
            let before = if has_state { in_rows(rounded) } else { vec![0.0; D * D] };
            let predicted = mix(key, &before);
            for (column, change) in change[at * D..][..D].iter_mut().enumerate() {
                *change = beta * (value[column] - grown * factor(key) * predicted[column]);
            }
            let v_new: Vec<f64> = (0..=at).flat_map(|j| mix(&inverse[j * CHUNK..][..=j], change)).collect();
            let scores: Vec<f64> = (0..=at).map(|j| weighted(query, j) / (D as f64).sqrt()).collect();
            let mut out = mix(&scores, &v_new);
            add(&mut out, grown * factor(query) / (D as f64).sqrt(), &mix(query, &before));
            o.extend(out);
            if launch.goes("a full chunk", at + 1 == CHUNK) {
                for (i, row) in states.chunks_mut(D).enumerate() {
                    row.iter_mut().for_each(|value| *value *= if has_state { grown } else { 0.0 });
                    for j in 0..CHUNK {
                        let factor = (decay[at] - decay[j]).exp() * scale[j] * keys[j * D + i];
                        add(row, factor, &v_new[j * D..][..D]);
                    }
                }
                for (i, row) in states.chunks(D).enumerate() {
                    row.iter().enumerate().for_each(|(j, value)| rounded[fragment_index(i, j)] = *value);
                }
            }
        }
    }
    launch.is("o", &o);
    for Pool { name, all, .. } in [states, rounded, decay, inverse, change, keys, scale] {
        launch.is(name, &all);
    }
}
