use precast_kernels::Key;
use precast_kernels::abi::{
    lora_dgrad_a_params, lora_dgrad_b_params, lora_fwd_a_params, lora_fwd_b_params, lora_part, lora_wgrad_params,
};

use super::calculus::{dot, gradient, product};
use super::launch::Launch;

/// An adapted part of a stack of [`N`] columns: scale, first column, columns.
const PARTS: [(f32, u32, u32); 2] = [(0.5, 1, 4), (3.0, 6, 3)];
const N: u32 = 11;
const RANK: u32 = 3;

/// The parts as a parameter block has them; `row` counts the columns before.
fn parts() -> [lora_part; 3] {
    let [(a, first, columns), (b, second, rest)] = PARTS;
    [
        lora_part { scale: a, start: first, width: columns, row: 0 },
        lora_part { scale: b, start: second, width: rest, row: columns },
        lora_part::default(),
    ]
}

/// `B r` of each part into its columns, 0 elsewhere, for rows of `r` that hold the ranks of both parts.
fn up(ranks: &[f64], b: &[f64], scaled: bool) -> Vec<f64> {
    let rank = RANK as usize;
    let row = |row: &[f64]| {
        let mut y = vec![0.0; N as usize];
        let mut rows = b.chunks(rank);
        for ((scale, start, width), ranks) in PARTS.into_iter().zip(row.chunks(rank)) {
            for y in &mut y[start as usize..][..width as usize] {
                *y = dot(ranks, rows.next().unwrap()) * if scaled { f64::from(scale) } else { 1.0 };
            }
        }
        y
    };
    ranks.chunks(2 * rank).flat_map(row).collect()
}

pub fn fwd_a(key: &Key) {
    let (m, k, rank, part) = (5, 9, RANK, parts());
    let launch = Launch::new(key, lora_fwd_a_params { m, k, rank, parts: 2, part, ..Default::default() });
    let mut t = product(&launch.before("x"), &launch.before("a"), k as usize);
    for row in t.chunks_mut(2 * rank as usize) {
        let (first, second) = row.split_at_mut(rank as usize);
        first.iter_mut().for_each(|t| *t *= f64::from(PARTS[0].0));
        second.iter_mut().for_each(|t| *t *= f64::from(PARTS[1].0));
    }
    launch.is("t", &t);
}

pub fn fwd_b(key: &Key) {
    let (m, n, rank, part) = (5, N, RANK, parts());
    let launch = Launch::new(key, lora_fwd_b_params { m, n, rank, parts: 2, part, ..Default::default() });
    let added = up(&launch.before("t"), &launch.before("b"), false);
    launch.is("y", &launch.before("y").iter().zip(added).map(|(y, added)| y + added).collect::<Vec<_>>());
}

pub fn dgrad_b(key: &Key) {
    let (m, n, rank, part) = (5, N, RANK, parts());
    let launch = Launch::new(key, lora_dgrad_b_params { m, n, rank, parts: 2, part, ..Default::default() });
    let (dy, b) = (launch.before("dy"), launch.before("b"));
    let ranks = vec![0.5; (m * 2 * rank) as usize];
    launch.is("dt", &gradient(&ranks, |ranks| dot(&up(ranks, &b, true), &dy)));
}

pub fn dgrad_a(key: &Key) {
    let (m, k, rank) = (5, 9, 6);
    let launch = Launch::new(key, lora_dgrad_a_params { m, k, rank, ..Default::default() });
    let (dt, a, before) = (launch.before("dt"), launch.before("a"), launch.before("dx"));
    let own = gradient(&before, |x| dot(&product(x, &a, k as usize), &dt));
    launch.is("dx", &before.iter().zip(own).map(|(before, own)| before + own).collect::<Vec<_>>());
}

pub fn wgrad(key: &Key) {
    let (m, n, columns, part) = (70, N, RANK, parts());
    let params = |splits| lora_wgrad_params { m, n, columns, splits, parts: 2, part, ..Default::default() };
    let of_rows = |x: &[f64], dy: &[f64]| {
        let widths: u32 = PARTS.iter().map(|(_, _, width)| width).sum();
        gradient(&vec![0.5; (widths * columns) as usize], |b| dot(&up(x, b, false), dy))
    };
    let launch = Launch::new(key, params(1));
    let mut dw = of_rows(&launch.before("x"), &launch.before("dy"));
    if launch.micro().1 {
        dw.iter_mut().zip(launch.before("dw")).for_each(|(dw, old)| *dw += old);
    }
    launch.is("dw", &dw);
    // Slices of 32 rows: one of three, and the other two.
    let launch = Launch::new(key, params(2));
    let (x, dy) = (launch.before("x"), launch.before("dy"));
    let (x, dy) = (x.split_at(32 * 2 * columns as usize), dy.split_at(32 * n as usize));
    launch.is("partial", &[of_rows(x.0, dy.0), of_rows(x.1, dy.1)].concat());
}
