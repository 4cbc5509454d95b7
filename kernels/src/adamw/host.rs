use half::bf16;
use rayon::prelude::*;

use super::AdamwUpdate;
use super::rounding::{Moment, Randoms};
use crate::Dtype;
use crate::Moments;
use crate::abi::{adamw_params, step_metrics, update_scalars};
use crate::host::{Views, vectorized};

/// Elements updated per task.
const CHUNK: usize = 1 << 14;

pub(super) fn update(key: AdamwUpdate, p: &adamw_params, views: &mut Views<'_>) {
    match key.moments {
        Moments::Fp32 => apply::<f32>(key, p, views),
        Moments::Bf16 => apply::<bf16>(key, p, views),
    }
}

fn apply<M: Moment>(key: AdamwUpdate, p: &adamw_params, views: &mut Views<'_>) {
    let metrics = views.read::<step_metrics>("metrics")[0];
    let update = views.read::<update_scalars>("update")[0];
    if metrics.skipped != 0 {
        return;
    }
    let grad = views.read::<f32>("grad");
    let (master, m, v) = (views.write::<f32>("master"), views.write::<M>("m"), views.write::<M>("v"));
    let randoms = Randoms::of(update.step);
    let chunks = master.par_chunks_mut(CHUNK).zip(m.par_chunks_mut(CHUNK)).zip(v.par_chunks_mut(CHUNK));
    chunks.zip(grad.par_chunks(CHUNK)).enumerate().for_each(|(index, (((master, m), v), grad))| {
        let decayed = (p.decayed as usize).saturating_sub(index * CHUNK).min(master.len());
        let mut apply = |range: std::ops::Range<usize>, decay: f32| {
            let first = p.first + (index * CHUNK + range.start) as u64;
            let step = |i: usize, w: &mut f32, (m, v): (&mut M, &mut M), g: &f32| {
                let g = metrics.clip_scale * g;
                let new_m = p.beta1 * m.widened() + (1.0 - p.beta1) * g;
                let new_v = p.beta2 * v.widened() + (1.0 - p.beta2) * g * g;
                let denominator = (new_v / update.bias_correction2).sqrt() + p.eps;
                *w -= update.lr * (decay * *w + new_m / update.bias_correction1 / denominator);
                let random = || randoms.element(first + i as u64);
                *m = M::rounded(new_m, random);
                *v = M::rounded(new_v, || random() >> 16);
            };
            let moments = v[range.clone()].iter_mut().zip(&grad[range.clone()]);
            let weights = master[range.clone()].iter_mut().zip(&mut m[range]);
            vectorized(|| weights.zip(moments).enumerate().for_each(|(i, ((w, m), (v, g)))| step(i, w, (m, v), g)));
        };
        apply(0..decayed, p.weight_decay);
        let end = grad.len();
        apply(decayed..end, 0.0);
    });
    if key.w == Dtype::Bf16 {
        let weights = views.write::<bf16>("weights");
        weights.par_iter_mut().zip(&*master).for_each(|(w, master)| *w = bf16::from_f32(*master));
    }
}
