use rayon::prelude::*;

use crate::abi::rope_params;
use crate::host::Views;

/// Rotates the heads at the start of rows by the angle of their row's position, times `direction`.
pub(super) fn rotate(d: u32, direction: f32, p: &rope_params, views: &mut Views<'_>) {
    let (d, half) = (d as usize, d as usize / 2);
    let positions = views.read::<u32>("position");
    let [cos, sin] = ["cos", "sin"].map(|table| views.read::<f32>(table));
    let mut x = views.store("x");
    x.par_chunks_mut(p.row_stride as usize).zip(positions).for_each(|(row, position)| {
        let [cos, sin] = [cos, sin].map(|table| &table[*position as usize * half..][..half]);
        for head in row.chunks_mut(d).take(p.heads as usize) {
            let (first, second) = head.split_at_mut(half);
            for i in 0..half {
                let (a, b, c, s) = (first[i], second[i], cos[i], direction * sin[i]);
                first[i] = a * c - b * s;
                second[i] = b * c + a * s;
            }
        }
    });
}
