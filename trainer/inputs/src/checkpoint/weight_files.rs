//! The files that hold a model's weights.

use std::path::PathBuf;

use precast_fatbins::Digest;
use precast_system::files;
use rayon::prelude::*;

use super::CheckpointError;
use super::file::WeightFile;

/// SHA-256 over the weight files of a model.
///
/// # Errors
/// [`CheckpointError`] where a file cannot be read.
pub fn digest(paths: &[PathBuf]) -> Result<Digest, CheckpointError> {
    let digests: Result<Vec<Digest>, CheckpointError> =
        paths.par_iter().map(|path| files::digest(path).map_err(CheckpointError::io("read", path))).collect();
    let digests = digests?;
    match &digests[..] {
        [one] => Ok(*one),
        many => Ok(Digest::of_parts("precast.shards", many.iter().map(|digest| &digest.0[..]))),
    }
}

/// Has the page cache forget files; one that cannot be opened is nobody's loss.
pub fn forget(paths: &[PathBuf]) {
    paths.iter().filter_map(|path| WeightFile::open(path).ok()).for_each(|file| file.forget());
}
