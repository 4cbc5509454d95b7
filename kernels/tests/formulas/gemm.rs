use precast_kernels::abi::{gemm_dgrad_params, gemm_fwd_params, gemm_swiglu_params, gemm_wgrad_params};

use super::calculus::{dots, matmul, sum, transposed};
use super::launch::Launch;
use super::swiglu::{activation, gated};

/// `x w^T (+ bias)`; with experts, of the rows that are listed, and w is that of each row's.
fn projected(launch: &Launch, (experts_of, k): (u32, u32)) -> Vec<f64> {
    let (x, w, k) = (launch.before("x"), launch.before("w"), k as usize);
    let y = match launch.goes("experts", launch.optional("experts").is_some()) {
        false => matmul(&x, &w, k),
        true => {
            let (of_expert, tiles) = (w.len() / (experts_of & 0xffff) as usize, launch.before("tiles"));
            let tiles = tiles.chunks(4).skip(1).take(tiles[0] as usize);
            let rows = tiles.flat_map(|tile| {
                let [expert, first, end] = [0, 1, 2].map(|part| tile[part] as usize);
                matmul(&x[first * k..end * k], &w[expert * of_expert..][..of_expert], k)
            });
            rows.collect()
        }
    };
    let bias = if launch.flag("bias") { launch.before("bias") } else { vec![0.0] };
    y.iter().zip(bias.iter().cycle()).map(|(y, bias)| y + bias).collect()
}

/// Returns `y` with the rows that are computed: all, or those of the tiles that are listed, which are neighbors.
fn stored(launch: &Launch, computed: Vec<f64>, n: u32) -> Vec<f64> {
    if launch.optional("experts").is_none() {
        return computed;
    }
    let (mut y, first) = (launch.before("y"), launch.before("tiles")[5] as usize * n as usize);
    y[first..first + computed.len()].copy_from_slice(&computed);
    y
}

pub fn fwd(launch: &mut Launch) {
    let gemm_fwd_params { n, k, experts_of, .. } = launch.params();
    let y = projected(launch, (experts_of, k));
    let y = stored(launch, y, n);
    launch.is("y", &if launch.flag("residual") { sum(&y, &launch.before("residual")) } else { y });
}

pub fn swiglu(launch: &mut Launch) {
    let gemm_swiglu_params { n, k, experts_of, .. } = launch.params();
    let y = gated(&projected(launch, (experts_of, k)), n, activation(launch));
    launch.is("y", &stored(launch, y, n));
}

pub fn dgrad(launch: &mut Launch) {
    let gemm_dgrad_params { m, n, k, .. } = launch.params();
    let (dy, w) = (launch.before("dy"), launch.before("w"));
    let x = vec![0.5; (m * k) as usize];
    launch.is_gradient("dx", &x, |x| dots(&matmul(x, &w, k as usize), &dy, n as usize));
}

/// A row of weights makes a column of y.
pub fn wgrad(launch: &mut Launch) {
    let gemm_wgrad_params { m, n, k, accumulate, .. } = launch.params();
    let (m, k) = (m as usize, k as usize);
    let adds = launch.goes("always adds", accumulate == 1) || launch.goes("later", launch.is_later());
    let (dy, x, old) = (transposed(&launch.before("dy"), n as usize), launch.before("x"), launch.kept("dw", adds));
    launch.is_gradient("dw", &old, |w| sum(&dots(&matmul(w, &x, k), &dy, m), &dots(w, &old, k)));
}
