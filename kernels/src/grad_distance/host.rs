use rayon::prelude::*;

use crate::abi::grad_distance_partial_params;
use crate::host::{Views, vectorized};

/// Sums the products of two groups.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    vectorized(|| {
        let mut lanes = [0.0f64; 8];
        for (a, b) in a.chunks(8).zip(b.chunks(8)) {
            lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += f64::from(*a) * f64::from(*b));
        }
        lanes.iter().sum::<f64>() as f32
    })
}

pub(super) fn partial(p: &grad_distance_partial_params, views: &mut Views<'_>) {
    let (a, b) = (views.read::<f32>("a"), views.read::<f32>("b"));
    let partial = views.write::<f32>("partial");
    let groups = partial.len() / 3;
    for (sums, (a, b)) in partial.chunks_mut(groups).zip([(a, b), (a, a), (b, b)]) {
        let pairs = a.par_chunks(p.group as usize).zip(b.par_chunks(p.group as usize));
        sums.par_iter_mut().zip(pairs).for_each(|(sum, (a, b))| *sum = dot(a, b));
    }
}
