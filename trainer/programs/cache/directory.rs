//! The directory of a cache: whether it can be filled, the teacher in it, and what it comes to.

use precast_kernels::Format;
use precast_plan::{Parameter, Precision};
use precast_system::files::Existing;

use super::{CacheOutcome, CacheRequest, Filled};
use crate::inputs::checkpoint::{self, Checkpoint, ModelSource, Scratch, Weights, write_model};
use crate::inputs::teacher_cache::{CacheManifest, Filling, Made};
use crate::run::failure::Failure;

/// Refuses a directory that cannot be filled, and a disk without room for the cache. Returns the sequences that are
/// there.
pub fn check_out(request: &CacheRequest, made: &Made, disk_bytes: u64) -> Result<u64, Failure> {
    request.check_space(disk_bytes)?;
    Ok(Filling::check(&request.out, made)?)
}

/// Returns the result of a filling.
pub fn filled(manifest: CacheManifest, continued: u64, tokens_per_s: Option<f64>) -> CacheOutcome {
    CacheOutcome::Filled(Box::new(Filled { sha256: manifest.sha256(), manifest, continued, tokens_per_s }))
}

/// Writes the teacher's head, configuration and tokenizer, whatever a stopped filling has written of them.
pub fn write_head(
    filling: &Filling,
    teacher: &Checkpoint,
    head: &[Parameter],
    precision: Precision,
) -> Result<(), Failure> {
    let directory = filling.new_teacher()?;
    let dtype = precision.dtype();
    let written = ModelSource {
        config: &teacher.json,
        parameters: head,
        dtype: checkpoint::stored(dtype),
        tokenizer_from: &[teacher],
    };
    let mut scratch = Scratch::default();
    Ok(write_model(&directory, Existing::Keep, &written, |parameter, write| {
        write(teacher.read(parameter, Format::Dense(dtype), &mut scratch)?)
    })?)
}
