//! Sums over columns, and of the squares of all gradients.

use precast_kernels::abi::{
    column_sum_finish_params, column_sum_partial_params, grad_distance_partial_params, grad_norm_finish_params,
    grad_norm_partial_params,
};

use super::calculus::{dots, sum, transposed};
use super::launch::Launch;

fn column_sums(x: &[f64], columns: u32) -> Vec<f64> {
    let rows = x.len() / columns as usize;
    transposed(x, columns as usize).chunks(rows).map(|column| column.iter().sum()).collect()
}

pub fn column_sum_partial(launch: &mut Launch) {
    let column_sum_partial_params { n, group, .. } = launch.params();
    let groups = launch.before("x");
    let sums = groups.chunks((group * n) as usize).flat_map(|group| column_sums(group, n));
    launch.is("partial", &sums.collect::<Vec<_>>());
}

pub fn column_sum_finish(launch: &mut Launch) {
    let column_sum_finish_params { n, .. } = launch.params();
    launch.is("grad", &sum(&column_sums(&launch.before("partial"), n), &launch.kept("grad", launch.is_later())));
}

pub fn grad_distance_partial(launch: &mut Launch) {
    let grad_distance_partial_params { group, .. } = launch.params();
    let (a, b) = (launch.before("a"), launch.before("b"));
    launch.is("partial", &[(&a, &b), (&a, &a), (&b, &b)].map(|(a, b)| dots(a, b, group as usize)).concat());
}

pub fn grad_norm_partial(launch: &mut Launch) {
    let grad_norm_partial_params { group, .. } = launch.params();
    let grad = launch.before("grad");
    launch.is("partial", &dots(&grad, &grad, group as usize));
}

pub fn grad_norm_finish(launch: &mut Launch) {
    let grad_norm_finish_params { clip, .. } = launch.params();
    let (clip, before) = (f64::from(clip), launch.before("metrics"));
    let norm = launch.before("partial").iter().sum::<f64>().sqrt();
    let clips = launch.goes("has a clip", clip > 0.0) && launch.goes("clips", norm > clip);
    let scale = if clips { clip / (norm + 1e-6) } else { 1.0 };
    launch.is("metrics", &[before[0], before[1], norm, scale, 0.0, before[5]]);
}
