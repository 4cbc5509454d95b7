use rayon::prelude::*;

use crate::abi::grad_distance_partial_params;
use crate::grad_norm::dot;
use crate::host::Views;

pub(super) fn partial(p: &grad_distance_partial_params, views: &mut Views<'_>) {
    let (a, b) = (views.read::<f32>("a"), views.read::<f32>("b"));
    let partial = views.write::<f32>("partial");
    let groups = partial.len() / 3;
    for (sums, (a, b)) in partial.chunks_mut(groups).zip([(a, b), (a, a), (b, b)]) {
        let pairs = a.par_chunks(p.group as usize).zip(b.par_chunks(p.group as usize));
        sums.par_iter_mut().zip(pairs).for_each(|(sum, (a, b))| *sum = dot(a, b));
    }
}
