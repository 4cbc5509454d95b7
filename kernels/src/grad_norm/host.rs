use rayon::prelude::*;

use crate::abi::{grad_norm_finish_params, grad_norm_partial_params, step_metrics};
use crate::host::{Views, vectorized};

/// The dot product of two groups.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    vectorized(|| {
        let mut lanes = [0.0f64; 8];
        for (a, b) in a.chunks(8).zip(b.chunks(8)) {
            lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += f64::from(*a) * f64::from(*b));
        }
        lanes.iter().sum::<f64>() as f32
    })
}

pub(super) fn partial(p: &grad_norm_partial_params, views: &mut Views<'_>) {
    let grad = views.read::<f32>("grad");
    let partial = views.write::<f32>("partial");
    partial.par_iter_mut().zip(grad.par_chunks(p.group as usize)).for_each(|(sum, grad)| *sum = dot(grad, grad));
}

pub(super) fn finish(p: &grad_norm_finish_params, views: &mut Views<'_>) {
    let partial = views.read::<f32>("partial");
    let metrics = &mut views.write::<step_metrics>("metrics")[0];
    let norm = partial.iter().map(|sum| f64::from(*sum)).sum::<f64>().sqrt() as f32;
    metrics.grad_norm = norm;
    metrics.clip_scale = if p.clip > 0.0 { (p.clip / (norm + 1e-6)).min(1.0) } else { 1.0 };
    metrics.skipped = u32::from(!norm.is_finite());
    metrics.reserved = 0;
}
