use half::bf16;
use rayon::prelude::*;

use super::AdamwUpdate;
use crate::Dtype;
use crate::abi::{adamw_params, step_metrics, update_scalars};
use crate::host::{Views, vectorized};

/// Elements updated per task.
const CHUNK: usize = 1 << 14;

pub(super) fn update(key: AdamwUpdate, p: &adamw_params, views: &mut Views<'_>) {
    let metrics = views.read::<step_metrics>("metrics")[0];
    let update = views.read::<update_scalars>("update")[0];
    if metrics.skipped != 0 {
        return;
    }
    let grad = views.read::<f32>("grad");
    let (master, m, v) = (views.write::<f32>("master"), views.write::<f32>("m"), views.write::<f32>("v"));
    let chunks = master.par_chunks_mut(CHUNK).zip(m.par_chunks_mut(CHUNK)).zip(v.par_chunks_mut(CHUNK));
    chunks.zip(grad.par_chunks(CHUNK)).enumerate().for_each(|(index, (((master, m), v), grad))| {
        let decayed = (p.decayed as usize).saturating_sub(index * CHUNK).min(master.len());
        let mut apply = |range: std::ops::Range<usize>, decay: f32| {
            let step = |((w, m), (v, g)): ((&mut f32, &mut f32), (&mut f32, &f32))| {
                let g = metrics.clip_scale * g;
                *m = p.beta1 * *m + (1.0 - p.beta1) * g;
                *v = p.beta2 * *v + (1.0 - p.beta2) * g * g;
                let denominator = (*v / update.bias_correction2).sqrt() + p.eps;
                *w -= update.lr * (decay * *w + *m / update.bias_correction1 / denominator);
            };
            let moments = v[range.clone()].iter_mut().zip(&grad[range.clone()]);
            let weights = master[range.clone()].iter_mut().zip(&mut m[range]);
            vectorized(|| weights.zip(moments).for_each(step));
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
