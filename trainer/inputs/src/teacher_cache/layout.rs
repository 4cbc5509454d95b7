//! Names in a cache's directory.

use std::path::{Path, PathBuf};

/// The version of the files.
pub const FORMAT: u32 = 1;

/// Claims the directory: the name of a run's lock, so that no run and no filling share one.
pub(super) const LOCK: &str = ".precast.lock";
/// The teacher without its layers.
pub(super) const TEACHER: &str = "teacher";
/// The inputs that an incomplete cache is made from.
pub(super) const FILLING: &str = "filling.json";
pub(super) const HIDDEN: &str = "hidden.bin";
pub(super) const INDEX: &str = "index.bin";
/// The manifest of a complete cache.
pub(super) const MANIFEST: &str = "cache.json";

/// Returns the directory of the teacher's configuration, tokenizer and head in a cache.
pub fn model(cache: &Path) -> PathBuf {
    cache.join(TEACHER)
}

/// Returns the file of the teacher's head in a cache.
pub fn head(cache: &Path) -> PathBuf {
    model(cache).join("model.safetensors")
}

/// Returns the bytes of hidden states, their index and the teacher's head that a directory holds so far.
pub fn stored_bytes(cache: &Path) -> u64 {
    let files = [cache.join(HIDDEN), cache.join(INDEX), head(cache)];
    files.iter().map(|path| path.metadata().map_or(0, |file| file.len())).sum()
}
