//! Files that are whole or not there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file aside, flushes it to disk, and renames it into place: readers see the old content or the
/// new, never a part.
///
/// # Errors
/// Any I/O error; the old file is then still there and nothing is left aside.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let mut aside = tempfile::NamedTempFile::new_in(parent)?;
    aside.write_all(bytes)?;
    aside.as_file().sync_all()?;
    aside.persist(path).map_err(|error| error.error)?;
    // The rename itself must be on disk too.
    File::open(parent)?.sync_all()
}

/// Where toolchain, caches and default outputs go: `$PRECAST_HOME`, else `target/precast` of the checkout
/// around the current directory, else `precast` in the user's cache directory.
pub fn home() -> PathBuf {
    if let Some(home) = std::env::var_os("PRECAST_HOME") {
        return home.into();
    }
    let current = std::env::current_dir().unwrap_or_default();
    if let Some(root) = current.ancestors().find(|dir| dir.join("fatbins/Cargo.toml").is_file()) {
        return root.join("target/precast");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("precast")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write_whole(&path, b"old").unwrap();
        assert!(write_whole(&path.join("below"), b"new").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
