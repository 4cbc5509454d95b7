use rayon::prelude::*;

use super::{EmbeddingBwd, EmbeddingFwd};
use crate::abi::{embedding_bwd_params, embedding_fwd_params};
use crate::dequant::dequantize;
use crate::format::Format;
use crate::host::Views;

pub(super) fn fwd(key: EmbeddingFwd, p: &embedding_fwd_params, views: &mut Views<'_>) {
    let h = key.h as usize;
    let row_bytes = key.w.bytes(key.h.into()) as usize;
    let ids = views.read::<u32>("ids");
    let table = views.read::<u8>("table");
    assert!(ids.iter().all(|id| *id < p.vocab), "token id beyond the vocabulary");
    let row = |id: &u32| &table[*id as usize * row_bytes..][..row_bytes];
    match key.w {
        Format::Dense(_) => {
            let y = views.write::<u8>("y");
            y.par_chunks_mut(row_bytes).zip(ids).for_each(|(y, id)| y.copy_from_slice(row(id)));
        }
        Format::Block(block) => {
            let mut y = views.store("y");
            y.par_chunks_mut(h).zip(ids).for_each(|(y, id)| dequantize(block, row(id), y));
        }
    }
}

pub(super) fn bwd(key: EmbeddingBwd, p: &embedding_bwd_params, views: &mut Views<'_>) {
    let h = key.h as usize;
    let ids = views.read::<u32>("sorted_ids");
    let positions = views.read::<u32>("sorted_positions");
    let dy = views.load("dy");
    let dtable = views.write::<f32>("dtable");
    let mut run = vec![0.0f32; h];
    let mut start = 0;
    while start < ids.len() {
        let end = ids[start..].iter().position(|id| *id != ids[start]).map_or(ids.len(), |length| start + length);
        if ids[start] == p.padding {
            start = end;
            continue;
        }
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
