//! Inputs that are files, of one or of several.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Stands between the files of an input: no text has it.
const BETWEEN: &[u8] = b"\n\xff\n";

/// Divides an input into its files; those that it lacks are empty, and what is behind the last is left out.
pub fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut rest = Some(input);
    [(); N].map(|()| {
        let whole = rest.unwrap_or_default();
        let at = whole.windows(BETWEEN.len()).position(|window| window == BETWEEN);
        let (part, behind) = at.map_or((whole, None), |at| (&whole[..at], Some(&whole[at + BETWEEN.len()..])));
        rest = behind;
        part
    })
}

/// Makes an input of files.
pub fn joined(files: &[&[u8]]) -> Vec<u8> {
    files.join(BETWEEN)
}

/// Returns the path of a file of the checkout.
pub fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Reads a file of the checkout.
pub fn fixture(path: &str) -> Vec<u8> {
    fs::read(checkout(path)).expect(path)
}

/// Reads the files directly in a folder of the checkout whose names end so, by their names.
pub fn fixtures(folder: &str, end: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(checkout(folder)).expect(folder);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect(folder).path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(end) && path.is_file());
    paths.sort_unstable();
    paths.into_iter().map(|path| fs::read(path).expect(folder)).collect()
}

/// A folder of this process, whose files are those of one input after another.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty one below the directory for temporary files, which `cargo xtask fuzz` has in memory.
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("precast-fuzz-{process}-{number}"));
        fs::create_dir_all(&path).expect("a folder is made");
        Self(path)
    }

    /// Writes a file, and returns its path.
    pub fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("a folder is made");
        }
        fs::write(&path, bytes).expect("a file is written");
        path
    }

    /// Returns the path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect(name)
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}
