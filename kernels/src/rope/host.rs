use rayon::prelude::*;

use crate::abi::{IDLE_SLOT, rope_params, rope_store_params};
use crate::host::Views;
use crate::kv::Pool;

/// Rotates the heads at the start of rows by the angle of their row's position, times `direction`.
pub(super) fn rotate(d: u32, direction: f32, p: &rope_params, views: &mut Views<'_>) {
    let (d, half) = (d as usize, d as usize / 2);
    let positions = views.read::<u32>("position");
    let [cos, sin] = ["cos", "sin"].map(|table| views.read::<f32>(table));
    let mut x = views.store("x");
    x.par_chunks_mut(p.row_stride as usize).zip(positions).for_each(|(row, position)| {
        let angles = [cos, sin].map(|table| &table[*position as usize * half..][..half]);
        row.chunks_mut(d).take(p.heads as usize).for_each(|head| rotate_head(head, direction, angles));
    });
}

/// Rotates a head by angles of these cosines and sines.
fn rotate_head(head: &mut [f32], direction: f32, [cos, sin]: [&[f32]; 2]) {
    let half = head.len() / 2;
    let (first, second) = head.split_at_mut(half);
    for i in 0..half {
        let (a, b, c, s) = (first[i], second[i], cos[i], direction * sin[i]);
        first[i] = a * c - b * s;
        second[i] = b * c + a * s;
    }
}

/// Rotates the queries of rows, and stores keys, rotated, and values.
pub(super) fn store(d: u32, p: &rope_store_params, views: &mut Views<'_>) {
    let (pool, d) = (Pool { kv_heads: p.kv_heads, seq_len: p.seq_len, d }, d as usize);
    let (heads, kv_heads) = (p.heads as usize, p.kv_heads as usize);
    let [slots, positions] = ["slot", "position"].map(|name| views.read::<u32>(name));
    let [cos, sin] = ["cos", "sin"].map(|table| views.read::<f32>(table));
    let [mut qkv, mut keys, mut values] = ["qkv", "keys", "values"].map(|name| views.store(name));
    let rows = qkv.chunks_mut((heads + 2 * kv_heads) * d).zip(slots.iter().zip(positions));
    for (row, (slot, position)) in rows.filter(|(_, (slot, _))| **slot != IDLE_SLOT) {
        let angles = [cos, sin].map(|table| &table[*position as usize * d / 2..][..d / 2]);
        let (queries, stored) = row.split_at_mut(heads * d);
        queries.chunks_mut(d).for_each(|head| rotate_head(head, 1.0, angles));
        for (kv_head, (key, value)) in (0..).zip(stored.chunks(d).zip(stored[kv_heads * d..].chunks(d))) {
            let place = pool.at(*slot, kv_head, *position);
            keys[place..][..d].copy_from_slice(key);
            rotate_head(&mut keys[place..][..d], 1.0, angles);
            values[place..][..d].copy_from_slice(value);
        }
    }
}
