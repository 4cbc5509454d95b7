use rayon::prelude::*;

use crate::abi::{rope_at_params, rope_params};
use crate::host::Views;

/// Heads of d elements at the start of rows.
struct Heads {
    d: usize,
    heads: usize,
    row_stride: usize,
}

impl Heads {
    /// Rotates those of `x` by the angle of their row's position, times `direction`.
    fn rotate(&self, direction: f32, views: &mut Views<'_>, position: impl Fn(usize) -> usize + Sync) {
        let half = self.d / 2;
        let cos = views.read::<f32>("cos");
        let sin = views.read::<f32>("sin");
        let mut x = views.store("x");
        x.par_chunks_mut(self.row_stride).enumerate().for_each(|(row, elements)| {
            let position = position(row);
            let (cos, sin) = (&cos[position * half..][..half], &sin[position * half..][..half]);
            for head in elements.chunks_mut(self.d).take(self.heads) {
                let (first, second) = head.split_at_mut(half);
                for i in 0..half {
                    let (a, b, c, s) = (first[i], second[i], cos[i], direction * sin[i]);
                    first[i] = a * c - b * s;
                    second[i] = b * c + a * s;
                }
            }
        });
    }
}

pub(super) fn rotate(d: u32, direction: f32, p: &rope_params, views: &mut Views<'_>) {
    let heads = Heads { d: d as usize, heads: p.heads as usize, row_stride: p.row_stride as usize };
    heads.rotate(direction, views, |token| token % p.seq_len as usize);
}

pub(super) fn at(d: u32, p: &rope_at_params, views: &mut Views<'_>) {
    let positions = views.read::<u32>("position");
    let heads = Heads { d: d as usize, heads: p.heads as usize, row_stride: p.row_stride as usize };
    heads.rotate(1.0, views, |row| positions[row] as usize);
}
