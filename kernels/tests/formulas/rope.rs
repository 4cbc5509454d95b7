use precast_kernels::abi::{IDLE_SLOT, rope_params, rope_store_params};

use super::launch::Launch;

/// Elements i and i + d/2 of a head are a complex number that turns by the angle of position and i, or back.
fn rope(launch: &mut Launch, direction: f64) {
    let (d, rope_params { seq_len, heads, row_stride, .. }) = (launch.size("d"), launch.params());
    let positions = launch.before("position");
    let angles = set_angles(launch, seq_len as usize, d);
    let mut x = launch.before("x");
    for (token, row) in x.chunks_mut(row_stride as usize).enumerate() {
        for head in row.chunks_mut(d).take(heads as usize) {
            turn(head, direction, &angles[positions[token] as usize * (d / 2)..]);
        }
    }
    launch.is("x", &x);
}

/// Sets the tables; returns the angle of each position and pair.
fn set_angles(launch: &mut Launch, seq_len: usize, d: usize) -> Vec<f64> {
    let angles: Vec<f64> = (0..seq_len * d / 2).map(|index| (index as f64 * 0.37).sin() * 3.0).collect();
    launch.set("cos", &angles.iter().map(|angle| angle.cos()).collect::<Vec<_>>());
    launch.set("sin", &angles.iter().map(|angle| angle.sin()).collect::<Vec<_>>());
    angles
}

fn turn(head: &mut [f64], direction: f64, angles: &[f64]) {
    let half = head.len() / 2;
    for i in 0..half {
        let (length, own) = (head[i].hypot(head[i + half]), head[i + half].atan2(head[i]));
        let turned = own + direction * angles[i];
        (head[i], head[i + half]) = (length * turned.cos(), length * turned.sin());
    }
}

pub fn fwd(launch: &mut Launch) {
    rope(launch, 1.0);
}

/// Queries turn in place, keys where they are stored.
pub fn store(launch: &mut Launch) {
    let (d, rope_store_params { seq_len, heads, kv_heads, .. }) = (launch.size("d"), launch.params());
    let [seq_len, heads, kv_heads] = [seq_len, heads, kv_heads].map(|size| size as usize);
    let angles = set_angles(launch, seq_len, d);
    let (slots, positions) = (launch.before("slot"), launch.before("position"));
    let [mut qkv, mut keys, mut values] = ["qkv", "keys", "values"].map(|name| launch.before(name));
    for (index, row) in qkv.chunks_mut((heads + 2 * kv_heads) * d).enumerate() {
        if launch.goes("idle", slots[index] == f64::from(IDLE_SLOT)) {
            continue;
        }
        let (slot, position) = (slots[index] as usize, positions[index] as usize);
        let angles = &angles[position * (d / 2)..];
        row[..heads * d].chunks_mut(d).for_each(|head| turn(head, 1.0, angles));
        for head in 0..kv_heads {
            let place = ((slot * kv_heads + head) * seq_len + position) * d;
            keys[place..][..d].copy_from_slice(&row[(heads + head) * d..][..d]);
            turn(&mut keys[place..][..d], 1.0, angles);
            values[place..][..d].copy_from_slice(&row[(heads + kv_heads + head) * d..][..d]);
        }
    }
    for (name, expected) in [("qkv", qkv), ("keys", keys), ("values", values)] {
        launch.is(name, &expected);
    }
}

pub fn bwd(launch: &mut Launch) {
    rope(launch, -1.0);
}
