use rayon::prelude::*;

use super::{SwigluBwd, SwigluFwd};
use crate::abi::{swiglu_bwd_params, swiglu_fwd_params};
use crate::host::{Views, round_to, vectorized};
use crate::int8::RowStore;

pub(super) fn fwd(key: SwigluFwd, p: &swiglu_fwd_params, views: &mut Views<'_>) {
    let n = p.n as usize;
    let gate_up = views.load("gate_up");
    let mut y = RowStore::new(views, "y", key.out);
    y.par_chunks_mut(n).zip(gate_up.par_chunks(2 * n)).for_each(|(y, gate_up)| {
        let (gate, up) = gate_up.split_at(n);
        vectorized(|| {
            for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
                // Rounded also if only quantized values are stored.
                *y = round_to(key.x, gate * key.gate.sigmoid(*gate) * up);
            }
        });
    });
}

pub(super) fn bwd(key: SwigluBwd, p: &swiglu_bwd_params, views: &mut Views<'_>) {
    let n = p.n as usize;
    let gate_up = views.load("gate_up");
    let dy = views.load("dy");
    let mut dgate_up = RowStore::new(views, "dgate_up", key.out);
    dgate_up.par_chunks_mut(2 * n).zip(gate_up.par_chunks(2 * n)).zip(dy.par_chunks(n)).for_each(
        |((dgate_up, gate_up), dy)| {
            let (gate, up) = gate_up.split_at(n);
            let (dgate, dup) = dgate_up.split_at_mut(n);
            vectorized(|| {
                let inputs = gate.iter().zip(up).zip(dy);
                for ((dgate, dup), ((gate, up), dy)) in dgate.iter_mut().zip(dup).zip(inputs) {
                    let s = key.gate.sigmoid(*gate);
                    *dgate = dy * up * s * key.gate.slope(*gate, s);
                    *dup = dy * gate * s;
                }
            });
        },
    );
}
