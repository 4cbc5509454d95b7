//! Checks that a cache holds a run's teacher and the rows of every sequence.

use std::sync::Arc;

use precast_fatbins::Digest;
use precast_plan::{Plan, Precision};

use crate::base::notes::note;
use crate::inputs::checkpoint::{self, Checkpoint};
use crate::inputs::data::Chunk;
use crate::inputs::teacher_cache::{Compact, FilledBy, Key, TeacherCache};
use crate::options::{RunConfig, TaughtBy};
use crate::run::certificate::hidden_kernels_sha256;
use crate::run::failure::Failure;
use crate::run::identity::Data;

/// Compares the caches of teachers, by their numbers, with the run that is to read them. `files` hashes the training
/// data.
///
/// # Errors
/// [`Failure::Cache`] of another teacher, and of the first sequence that a cache lacks.
pub fn check(
    caches: &[Option<Arc<TeacherCache>>],
    config: &RunConfig,
    data: &Data,
    mut files: impl FnMut() -> Result<Digest, Failure>,
) -> Result<(), Failure> {
    let mut caches = caches.iter().enumerate();
    caches.try_for_each(|(number, cache)| match cache {
        Some(cache) => check_one((number, cache), config, data, &mut files),
        None => Ok(()),
    })
}

fn check_one(
    (number, cache): (usize, &TeacherCache),
    config: &RunConfig,
    data: &Data,
    files: impl FnOnce() -> Result<Digest, Failure>,
) -> Result<(), Failure> {
    let made = &cache.manifest().made;
    let teacher = number as u32;
    if let TaughtBy::Cache { of: Some(path), .. } = &config.teachers[number].by {
        let found = checkpoint::digest(&Checkpoint::open(path)?.weight_files())?;
        if found != made.teacher_sha256 {
            return Err(cache.of_another_teacher(path, found).into());
        }
    }
    check_kernels(cache, config.arithmetic.precision)?;
    if data.signature(files()?) != made.data_sha256 {
        let (mut number, mut lacking) = (0_u64, None);
        data.streams.corpus.pass_while(&mut |chunk| {
            number += 1;
            lacking = (chunk.teacher == teacher && lacks(cache, &chunk)).then_some(number);
            lacking.is_none()
        })?;
        if let Some(number) = lacking {
            return Err(cache.lacks_sequence(number, &config.teachers.sources_of(teacher, &config.data)).into());
        }
    }
    let held_out = data.held_out.iter().flat_map(|held_out| &held_out.chunks);
    match first_lacking((cache, teacher), held_out) {
        Some(number) => {
            let named = config.teachers.sources_of(teacher, &config.eval_data);
            Err(cache.lacks_held_out(number, &named).into())
        }
        None => Ok(()),
    }
}

/// Returns the number of the first sequence that the cache of a teacher lacks, counted from 1.
pub fn first_lacking<'a>(
    (cache, teacher): (&TeacherCache, u32),
    chunks: impl IntoIterator<Item = &'a Chunk>,
) -> Option<u64> {
    let is_lacking = |(_, chunk): &(u64, &Chunk)| chunk.teacher == teacher && lacks(cache, chunk);
    (1..).zip(chunks).find(is_lacking).map(|(number, _)| number)
}

fn lacks(cache: &TeacherCache, chunk: &Chunk) -> bool {
    chunk.counted() > 0 && !cache.has(&Key::of_chunk(chunk, cache.manifest().made.seq_len).0)
}

/// Notes an architecture whose kernels may give other bits than those that filled a cache.
pub fn note_arch(cache: &TeacherCache, plan: &Plan) {
    let is = plan.arch.argument();
    if let Some(FilledBy { arch: was, .. }) = &cache.manifest().made.filled_by
        && was != is
    {
        note_other_bits(cache, &format!("kernels of {was}, and this run launches those of {is}"));
    }
}

/// Notes kernels of which other bits may come than from those that filled the cache.
///
/// # Errors
/// [`Failure`] where the teacher's configuration cannot be read, or nothing computes it.
pub fn check_kernels(cache: &TeacherCache, precision: Precision) -> Result<(), Failure> {
    let made = &cache.manifest().made;
    let Some(FilledBy { kernels_sha256, .. }) = &made.filled_by else { return Ok(()) };
    let teacher = Checkpoint::open_without_layers(&cache.teacher(), made.compact.is_none())?;
    let own = hidden_kernels_sha256(teacher.config(), precision.exact(), made.compact.map(Compact::top))?;
    if own != *kernels_sha256 {
        note_other_bits(cache, "other kernels than this program's");
    }
    Ok(())
}

fn note_other_bits(cache: &TeacherCache, filled_by: &str) {
    note(format_args!(
        "{} was filled by {filled_by}: its values may differ in their last bits from those that a teacher would give \
        if it were computed now",
        cache.path().display()
    ));
}
