use precast_kernels::abi::{
    lora_dgrad_a_params, lora_dgrad_b_params, lora_fwd_a_params, lora_fwd_b_params, lora_part, lora_wgrad_params,
};

use super::calculus::{dot, dots, matmul, sum};
use super::launch::Launch;

/// `B r` of each part into its columns of n, 0 elsewhere, for rows of `r` that hold the ranks of all parts.
fn up(ranks: &[f64], b: &[f64], n: u32, parts: &[lora_part], scaled: bool) -> Vec<f64> {
    let rank = b.len() / parts.iter().map(|part| part.width as usize).sum::<usize>();
    let row = |row: &[f64]| {
        let mut y = vec![0.0; n as usize];
        let mut rows = b.chunks(rank);
        for (part, ranks) in parts.iter().zip(row.chunks(rank)) {
            for y in &mut y[part.start as usize..][..part.width as usize] {
                *y = dot(ranks, rows.next().unwrap()) * if scaled { f64::from(part.scale) } else { 1.0 };
            }
        }
        y
    };
    ranks.chunks(parts.len() * rank).flat_map(row).collect()
}

pub fn fwd_a(launch: &mut Launch) {
    let lora_fwd_a_params { k, rank, parts, part, .. } = launch.params();
    let mut t = matmul(&launch.before("x"), &launch.before("a"), k as usize);
    let columns = t.chunks_mut(rank as usize).zip(part[..parts as usize].iter().cycle());
    columns.for_each(|(t, part)| t.iter_mut().for_each(|t| *t *= f64::from(part.scale)));
    launch.is("t", &t);
}

pub fn fwd_b(launch: &mut Launch) {
    let lora_fwd_b_params { n, parts, part, .. } = launch.params();
    let added = up(&launch.before("t"), &launch.before("b"), n, &part[..parts as usize], false);
    launch.is("y", &sum(&launch.before("y"), &added));
}

pub fn dgrad_b(launch: &mut Launch) {
    let lora_dgrad_b_params { m, n, rank, parts, part, .. } = launch.params();
    let (dy, b) = (launch.before("dy"), launch.before("b"));
    let ranks = vec![0.5; (m * parts * rank) as usize];
    launch.is_gradient("dt", &ranks, |t| dots(&up(t, &b, n, &part[..parts as usize], true), &dy, n as usize));
}

pub fn dgrad_a(launch: &mut Launch) {
    let lora_dgrad_a_params { k, rank, .. } = launch.params();
    let (k, rank) = (k as usize, rank as usize);
    let (dt, a, before) = (launch.before("dt"), launch.before("a"), launch.before("dx"));
    launch.is_gradient("dx", &before, |x| sum(&dots(&matmul(x, &a, k), &dt, rank), &dots(x, &before, k)));
}

pub fn wgrad(launch: &mut Launch) {
    let lora_wgrad_params { m, n, columns, splits, parts, part, .. } = launch.params();
    let (x, dy, parts) = (launch.before("x"), launch.before("dy"), &part[..parts as usize]);
    let is_whole = launch.goes("whole", splits == 1);
    let old = if is_whole { launch.kept("dw", launch.is_later()) } else { vec![0.0; launch.after("partial").len()] };
    let [rows, ranks] = [n as usize, parts.len() * columns as usize];
    // Ranges are whole slices of 32 rows.
    let at = |range: u32| (m.div_ceil(32) * range / splits * 32).min(m) as usize;
    let range = |index: u32| (at(index), at(index + 1));
    launch.is_gradient(if is_whole { "dw" } else { "partial" }, &old, |b| {
        let of_ranges = (0..splits).map(range).zip(b.chunks(b.len() / splits as usize)).map(|((first, end), b)| {
            dot(&up(&x[first * ranks..end * ranks], b, n, parts, false), &dy[first * rows..end * rows])
        });
        sum(&of_ranges.collect::<Vec<_>>(), &dots(b, &old, b.len() / splits as usize))
    });
}
