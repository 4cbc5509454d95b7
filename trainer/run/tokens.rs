//! The running digest of the tokens that a run has seen, and of what they count as: each step's with the one before it.

use precast_fatbins::Digest;

use crate::inputs::data::{Batches, DataError, Step};

/// Before the first step.
pub fn none() -> Digest {
    Digest::of(b"")
}

/// After a step.
pub fn after(before: Digest, step: &Step) -> Digest {
    let rows = step.rows.iter().flat_map(|row| row.parts());
    Digest::of_parts("precast.tokens", std::iter::once(&before.0[..]).chain(rows))
}

/// After the first `steps` steps, of `accum` micro-batches each, which are skipped.
///
/// # Errors
/// [`DataError`] of what is read.
pub fn seen(batches: &mut Batches, steps: u64, accum: u32) -> Result<Digest, DataError> {
    (0..steps).try_fold(none(), |before, _| Ok(after(before, &batches.step(accum)?)))
}
