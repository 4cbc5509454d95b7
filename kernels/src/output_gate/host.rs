use rayon::prelude::*;

use super::{OutputGateBwd, OutputGateFwd};
use crate::abi::{output_gate_bwd_params, output_gate_fwd_params};
use crate::host::{Views, round_to, sigmoid};

pub(super) fn fwd(key: OutputGateFwd, p: &output_gate_fwd_params, views: &mut Views<'_>) {
    let (d, heads, row_heads) = (key.d as usize, p.heads as usize, p.row_heads as usize);
    let (o, packed) = (views.load("o"), views.load("packed"));
    let mut y = views.store("y");
    let rows = y.par_chunks_mut(heads * d).zip(o.par_chunks(heads * d)).zip(packed.par_chunks(row_heads * d));
    rows.for_each(|((y, o), packed)| {
        let gates = packed.chunks(d).skip(1).step_by(2).take(heads).flatten();
        y.iter_mut().zip(o).zip(gates).for_each(|((y, o), gate)| *y = o * round_to(key.x, sigmoid(*gate)));
    });
}

pub(super) fn bwd(key: OutputGateBwd, p: &output_gate_bwd_params, views: &mut Views<'_>) {
    let (d, heads, row_heads) = (key.d as usize, p.heads as usize, p.row_heads as usize);
    let (o, packed, dy) = (views.load("o"), views.load("packed"), views.load("dy"));
    let [mut d_o, mut dpacked] = ["d_o", "dpacked"].map(|name| views.store(name));
    let inputs = o.par_chunks(heads * d).zip(packed.par_chunks(row_heads * d)).zip(dy.par_chunks(heads * d));
    let rows = d_o.par_chunks_mut(heads * d).zip(dpacked.par_chunks_mut(row_heads * d)).zip(inputs);
    rows.for_each(|((d_o, dpacked), ((o, packed), dy))| {
        let of_gates = |i: usize| (2 * (i / d) + 1) * d + i % d;
        for i in 0..heads * d {
            let s = sigmoid(packed[of_gates(i)]);
            d_o[i] = dy[i] * round_to(key.x, s);
            dpacked[of_gates(i)] = dy[i] * o[i] * (s * (1.0 - s));
        }
    });
}
