use rayon::prelude::*;

use super::{EmbeddingBwd, EmbeddingFwd};
use crate::abi::{embedding_bwd_params, embedding_fwd_params};
use crate::host::Views;

pub(super) fn fwd(key: EmbeddingFwd, p: &embedding_fwd_params, views: &mut Views<'_>) {
    let row_bytes = key.h as usize * key.x.bytes() as usize;
    let ids = views.read::<u32>("ids");
    let table = views.read::<u8>("table");
    let y = views.write::<u8>("y");
    assert!(ids.iter().all(|id| *id < p.vocab), "token id beyond the vocabulary");
    y.par_chunks_mut(row_bytes).zip(ids).for_each(|(row, id)| {
        let start = *id as usize * row_bytes;
        row.copy_from_slice(&table[start..start + row_bytes]);
    });
}

pub(super) fn bwd(key: EmbeddingBwd, _p: &embedding_bwd_params, views: &mut Views<'_>) {
    let h = key.h as usize;
    let ids = views.read::<u32>("sorted_ids");
    let positions = views.read::<u32>("sorted_positions");
    let dy = views.load("dy");
    let dtable = views.write::<f32>("dtable");
    let mut run = vec![0.0f32; h];
    let mut start = 0;
    while start < ids.len() {
        let end = ids[start..].iter().position(|id| *id != ids[start]).map_or(ids.len(), |length| start + length);
        run.fill(0.0);
        for position in &positions[start..end] {
            let row = &dy[*position as usize * h..][..h];
            run.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        let target = &mut dtable[ids[start] as usize * h..][..h];
        target.iter_mut().zip(&run).for_each(|(sum, value)| *sum += value);
        start = end;
    }
}
