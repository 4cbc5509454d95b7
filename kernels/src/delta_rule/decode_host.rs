use rayon::prelude::*;

use super::host::{CHUNK, D, Rows, decayed_by, factors_of, log_decay, multiply, sigmoid};
use crate::abi::{DeltaRuleDecode, IDLE_SLOT, delta_rule_decode_params};
use crate::host::{Views, round_to};

/// A head's part of a slot.
struct Slot<'a> {
    state: &'a mut [f32],
    /// Of x, in the order of fragments.
    rounded: &'a mut [f32],
    decay: &'a mut [f32],
    inverse: &'a mut [f32],
    change: &'a mut [f32],
}

/// Queries, keys, values and gates of a row and a value head, and keys and their factors of its chunk.
struct Inputs<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    log_decay: f64,
    beta: f32,
    keys: &'a [f32],
    of_keys: &'a [f32],
}

/// Index of an element of a rounded state: a lane of `mma` finds its elements of operand b side by side.
fn fragment_index(row: usize, column: usize) -> usize {
    let (tile, lane) = (column / 16 * (D / 16) + row / 16, column % 8 * 4 + row % 8 / 2);
    (tile * 32 + lane) * 8 + column % 16 / 8 * 4 + row % 16 / 8 * 2 + row % 2
}

/// Computes a row as the forward pass does, and moves the state if its chunk is full.
fn compute(x: crate::Dtype, inputs: &Inputs<'_>, slot: &mut Slot<'_>, position: usize) -> Vec<f32> {
    let (row, has_before, beta) = (position % CHUNK, position >= CHUNK, inputs.beta);
    let before = if row > 0 { slot.decay[row - 1] } else { 0.0 };
    slot.decay[row] = decayed_by(before, inputs.log_decay);
    let decays = &*slot.decay;
    let between = |j: usize| (decays[row] - decays[j]).exp();
    let (of_query, of_keys) = (factors_of(inputs.query)[0], inputs.of_keys);
    let (keys, query, key) = (rows(inputs.keys, D), rows(inputs.query, D), rows(inputs.key, D));

    let system = multiply(key.view(), keys.view().t(), 1, CHUNK);
    let system = system.mapped(|_, j, sum| match j < row {
        true => beta * of_keys[row] * of_keys[j] * sum * between(j),
        false => 0.0,
    });
    for column in 0..CHUNK {
        let terms = (column..row).map(|j| f64::from(system.data[j]) * f64::from(slot.inverse[j * CHUNK + column]));
        slot.inverse[row * CHUNK + column] = if column == row { 1.0 } else { -terms.sum::<f64>() as f32 };
    }
    let scores = multiply(query.view(), keys.view().t(), 1, CHUNK);
    let scores = scores.mapped(|_, j, sum| match j <= row {
        true => of_query * of_keys[j] * sum * between(j),
        false => 0.0,
    });

    let or_zero = |state: &[f32]| if has_before { rows(state, D) } else { Rows::zeros(D, D) };
    let rounded =
        or_zero(slot.rounded).mapped(|i, j, _| if has_before { slot.rounded[fragment_index(i, j)] } else { 0.0 });
    let grown = decays[row].exp();
    let read = multiply(key.view(), rounded.view(), 1, D);
    let change = rows(inputs.value, D)
        .mapped(|_, column, value| beta * (value - grown * of_keys[row] * read.row(0)[column]))
        .rounded(x);
    slot.change[row * D..][..D].copy_from_slice(&change.data);
    // Rows behind are of another chunk.
    let known = |i: usize, _: usize, value: f32| if i <= row { value } else { 0.0 };
    let inverse = rows(slot.inverse, CHUNK).mapped(|i, j, value| if j <= i { known(i, j, value) } else { 0.0 });
    let v_new = multiply(inverse.rounded(x).view(), rows(slot.change, D).mapped(known).view(), CHUNK, D);
    let of_state = multiply(query.view(), rounded.view(), 1, D).scaled(|_| grown * of_query);
    let o = multiply(scores.rounded(x).view(), v_new.clone().rounded(x).view(), 1, D).plus(&of_state);

    if row + 1 == CHUNK {
        let written = v_new.scaled(|i| between(i) * of_keys[i]).rounded(x);
        let moved = multiply(keys.view().t(), written.view(), D, D).plus(&or_zero(slot.state).scaled(|_| grown));
        slot.state.copy_from_slice(&moved.data);
        for (index, value) in moved.rounded(x).data.iter().enumerate() {
            slot.rounded[fragment_index(index / D, index % D)] = *value;
        }
    }
    o.data
}

fn rows(data: &[f32], columns: usize) -> Rows {
    Rows { columns, data: data.to_vec() }
}

pub(super) fn decode(key: DeltaRuleDecode, p: &delta_rule_decode_params, views: &mut Views<'_>) {
    let (key_heads, value_heads) = (p.key_heads as usize, p.value_heads as usize);
    let (gate_columns, b_column) = (p.gate_columns as usize, p.b_column as usize);
    let (qkv, gates) = (views.load("qkv"), views.load("gates"));
    let (a_log, dt_bias) = views.read::<f32>("rates").split_at(value_heads);
    let (slots, positions) = (views.read::<u32>("slot"), views.read::<u32>("position"));
    let [states, scale, decay, inverse] = ["states", "scale", "decay", "inverse"].map(|name| views.write::<f32>(name));
    let [mut rounded, mut keys, mut change, mut o] = ["rounded", "keys", "change", "o"].map(|name| views.store(name));
    o.fill(0.0);
    let rows = qkv.chunks((2 * key_heads + value_heads) * D).zip(gates.chunks(gate_columns));
    for (row, ((qkv, gates), (slot, position))) in rows.zip(slots.iter().zip(positions)).enumerate() {
        if *slot == IDLE_SLOT {
            continue;
        }
        let (slot, position) = (*slot as usize, *position as usize);
        let head = |index: usize| &qkv[index * D..][..D];
        for key_head in 0..key_heads {
            let place = (slot * key_heads + key_head) * CHUNK + position % CHUNK;
            keys[place * D..][..D].copy_from_slice(head(key_heads + key_head));
            scale[place] = factors_of(head(key_heads + key_head))[1];
        }
        let (keys, scale) = (&keys[slot * key_heads * CHUNK * D..], &scale[slot * key_heads * CHUNK..]);
        fn of_slot(all: &mut [f32], slot: usize, heads: usize, size: usize) -> std::slice::ChunksMut<'_, f32> {
            all[slot * heads * size..][..heads * size].chunks_mut(size)
        }
        let parts: Vec<Slot<'_>> = of_slot(states, slot, value_heads, D * D)
            .zip(of_slot(&mut rounded, slot, value_heads, D * D))
            .zip(of_slot(decay, slot, value_heads, CHUNK))
            .zip(of_slot(inverse, slot, value_heads, CHUNK * CHUNK))
            .zip(of_slot(&mut change, slot, value_heads, CHUNK * D))
            .map(|((((state, rounded), decay), inverse), change)| Slot { state, rounded, decay, inverse, change })
            .collect();
        let out = o[row * value_heads * D..][..value_heads * D].par_chunks_mut(D);
        out.zip(parts).enumerate().for_each(|(value_head, (out, mut part))| {
            let key_head = value_head / (value_heads / key_heads);
            let b = &gates[b_column + value_head..];
            let inputs = Inputs {
                query: head(key_head),
                key: head(key_heads + key_head),
                value: head(2 * key_heads + value_head),
                log_decay: log_decay(b[value_heads], a_log[value_head], dt_bias[value_head]),
                beta: round_to(key.x, sigmoid(b[0]) as f32),
                keys: &keys[key_head * CHUNK * D..][..CHUNK * D],
                of_keys: &scale[key_head * CHUNK..][..CHUNK],
            };
            out.copy_from_slice(&compute(key.x, &inputs, &mut part, position));
        });
    }
}
