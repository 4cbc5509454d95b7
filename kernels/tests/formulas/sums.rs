//! Sums over columns, and of the squares of all gradients.

use precast_kernels::Key;
use precast_kernels::abi::{
    column_sum_finish_params, column_sum_partial_params, grad_distance_partial_params, grad_norm_finish_params,
    grad_norm_partial_params,
};

use super::calculus::{dot, transposed};
use super::launch::Launch;

pub fn column_sum_partial(key: &Key) {
    let (rows, n, group) = (29, 131, 8);
    let launch = Launch::new(key, column_sum_partial_params { rows, n, group, ..Default::default() });
    let x = launch.before("x");
    let sums = x.chunks((group * n) as usize).flat_map(|group| {
        transposed(group, n as usize)
            .chunks(group.len() / n as usize)
            .map(|column| column.iter().sum())
            .collect::<Vec<f64>>()
    });
    launch.is("partial", &sums.collect::<Vec<_>>());
}

pub fn column_sum_finish(key: &Key) {
    let launch = Launch::new(key, column_sum_finish_params { rows: 29, n: 131, ..Default::default() });
    let (_, adds) = launch.micro();
    let (partial, old) = (transposed(&launch.before("partial"), 131), launch.before("grad"));
    let sums =
        partial.chunks(29).zip(old).map(|(column, old)| column.iter().sum::<f64>() + if adds { old } else { 0.0 });
    launch.is("grad", &sums.collect::<Vec<_>>());
}

pub fn grad_distance_partial(key: &Key) {
    let launch = Launch::new(key, grad_distance_partial_params { n: 1000, group: 256, ..Default::default() });
    let (a, b) = (launch.before("a"), launch.before("b"));
    let sums = |a: &[f64], b: &[f64]| a.chunks(256).zip(b.chunks(256)).map(|(a, b)| dot(a, b)).collect();
    launch.is("partial", &[sums(&a, &b), sums(&a, &a), sums(&b, &b)].map(|sums: Vec<f64>| sums).concat());
}

pub fn grad_norm_partial(key: &Key) {
    let launch = Launch::new(key, grad_norm_partial_params { n: 1000, group: 256, ..Default::default() });
    launch.is("partial", &launch.before("grad").chunks(256).map(|group| dot(group, group)).collect::<Vec<_>>());
}

pub fn grad_norm_finish(key: &Key) {
    // The clip is reached, is not reached, and there is none.
    for clip in [1.0, 1e6, 0.0] {
        let launch = Launch::new(key, grad_norm_finish_params { count: 3001, clip, ..Default::default() });
        let norm = launch.before("partial").iter().sum::<f64>().sqrt();
        let scale = if clip == 0.0 { 1.0 } else { (f64::from(clip) / (norm + 1e-6)).min(1.0) };
        let before = launch.before("metrics");
        launch.is("metrics", &[before[0], before[1], norm, scale, 0.0, before[5]]);
    }
}
