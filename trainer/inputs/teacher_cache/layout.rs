//! Names in a cache's directory.

/// Claims the directory: the name of a run's lock, so that no run and no filling share one.
pub(super) const LOCK: &str = ".precast.lock";
/// The teacher without its layers.
pub(super) const TEACHER: &str = "teacher";
/// What an incomplete cache is made from.
pub(super) const FILLING: &str = "filling.json";
pub(super) const HIDDEN: &str = "hidden.bin";
pub(super) const INDEX: &str = "index.bin";
/// The manifest of a complete cache.
pub(super) const MANIFEST: &str = "cache.json";
