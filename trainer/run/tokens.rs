//! The running digest of the tokens that a run has seen, and of what they count as: each step's with the one before it.

use precast_fatbins::Digest;

use crate::data::Batches;

/// Before the first step.
pub fn none() -> Digest {
    Digest::of(b"")
}

/// After a step of `accum` micro-batches; `step` counts from 0.
pub fn after(before: Digest, batches: &mut Batches<'_>, step: u64, accum: u64) -> Digest {
    let chunks: Vec<usize> = (0..accum).flat_map(|micro| batches.chunks_of(step * accum + micro)).collect();
    let rows = chunks.iter().flat_map(|chunk| batches.row(*chunk).parts());
    Digest::of_parts("precast.tokens", std::iter::once(&before.0[..]).chain(rows))
}

/// After the first `steps` steps.
pub fn seen(batches: &mut Batches<'_>, steps: u64, accum: u64) -> Digest {
    (0..steps).fold(none(), |before, step| after(before, batches, step, accum))
}
