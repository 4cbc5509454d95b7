use rayon::prelude::*;

use crate::host::Views;

/// Elements added per task.
const CHUNK: usize = 1 << 14;

pub(super) fn add(views: &mut Views<'_>) {
    let x = views.read::<f32>("x");
    let chunks = views.write::<f32>("y").par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK));
    chunks.for_each(|(y, x)| y.iter_mut().zip(x).for_each(|(y, x)| *y += x));
}
