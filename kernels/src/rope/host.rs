use rayon::prelude::*;

use crate::abi::rope_params;
use crate::host::Views;

pub(super) fn rotate(d: u32, direction: f32, p: &rope_params, views: &mut Views<'_>) {
    let (d, half, stride) = (d as usize, d as usize / 2, p.row_stride as usize);
    let cos = views.read::<f32>("cos");
    let sin = views.read::<f32>("sin");
    let mut x = views.store("x");
    x.par_chunks_mut(stride).enumerate().for_each(|(token, row)| {
        let position = token % p.seq_len as usize;
        let (cos, sin) = (&cos[position * half..][..half], &sin[position * half..][..half]);
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
