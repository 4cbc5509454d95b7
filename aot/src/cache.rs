//! A content-addressed cache of cubins: a file's name is the digest of every input of its compilation.

use std::path::PathBuf;

use precast_fatbins::Digest;
use precast_system::{files, input};

/// Upper limit on a cubin's size.
const MOST_BYTES: u64 = 256 << 20;

/// Machine code of earlier builds, by the digest of all that it follows from.
#[derive(Clone, Debug)]
pub struct Cache(Option<PathBuf>);

impl Cache {
    /// Opens a cache in a directory.
    pub fn at(directory: PathBuf) -> Self {
        Self(Some(directory))
    }

    /// Returns a cache that holds and keeps nothing.
    pub fn none() -> Self {
        Self(None)
    }

    fn path(&self, key: &Digest) -> Option<PathBuf> {
        let name = key.to_string();
        Some(self.0.as_ref()?.join(&name[..2]).join(name))
    }

    /// Returns the cubin of a key; none if its file is missing or damaged. A file starts with the digest of the rest.
    pub fn get(&self, key: &Digest) -> Option<Vec<u8>> {
        let file = input::read(&self.path(key)?, MOST_BYTES).ok()?;
        let (digest, cubin) = file.split_at_checked(32)?;
        (Digest::of(cubin).0 == digest).then(|| cubin.to_vec())
    }

    /// Stores a cubin. A failed write costs time, not correctness, so errors are dropped.
    pub fn put(&self, key: &Digest, cubin: &[u8]) {
        if let Some(path) = self.path(key) {
            let _ = files::write_whole(&path, &[&Digest::of(cubin).0, cubin].concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_a_miss() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned());
        let key = Digest::of(b"key");
        assert_eq!(cache.get(&key), None);
        cache.put(&key, b"cubin");
        assert_eq!(cache.get(&key).unwrap(), b"cubin");
        let path = cache.path(&key).unwrap();
        for damaged in [&b"short"[..], &std::fs::read(&path).unwrap()[..35]] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get(&key), None);
        }
    }
}
