use crate::abi::{column_sum_finish_params, column_sum_partial_params, micro_scalars};
use crate::host::Views;
use rayon::prelude::*;

pub(super) fn partial(p: &column_sum_partial_params, views: &mut Views<'_>) {
    let (n, group) = (p.n as usize, p.group as usize * p.n as usize);
    let x = views.load("x");
    let partial = views.write::<f32>("partial");
    partial.par_chunks_mut(n).zip(x.par_chunks(group)).for_each(|(sum, rows)| {
        sum.fill(0.0);
        for row in rows.chunks(n) {
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
    });
}

pub(super) fn finish(p: &column_sum_finish_params, views: &mut Views<'_>) {
    let partial = views.read::<f32>("partial");
    let micro = views.read::<micro_scalars>("micro")[0];
    let grad = views.write::<f32>("grad");
    let mut total = vec![0.0f64; p.n as usize];
    for row in partial.chunks(p.n as usize) {
        total.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    for (grad, sum) in grad.iter_mut().zip(total) {
        let old = if micro.accumulate == 0 { 0.0 } else { *grad };
        *grad = old + sum as f32;
    }
}
