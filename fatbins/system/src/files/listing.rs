//! Lists a directory's files with their digests, in the format of `sha256sum`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use precast_core::{Digest, Hasher};

use super::changes::remove_file;
use super::fault;
use crate::input::{self, ReadError};
use precast_core::shell::quoted;

/// Name of a directory's listing: `sha256sum -c precast.sha256` checks its files.
pub const LISTING: &str = "precast.sha256";

/// Digests by relative, `/`-separated file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing(pub BTreeMap<String, Digest>);

/// A directory that differs from its listing.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// There is no listing, so the directory's content is unknown.
    #[error("{} has no {LISTING}: Precast did not write it, or the file was removed", .0.display())]
    Unlisted(PathBuf),
    /// The listing does not parse.
    #[error("{}: line {line} is not a SHA-256, two blanks and a name", path.display())]
    Line {
        /// File of the list.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A file stands there that is not listed.
    #[error("{} is not listed: Precast did not write it", .0.display())]
    Foreign(PathBuf),
    /// A file has another digest than the listed one.
    #[error("{} was changed since it was written: its SHA-256 differs", .0.display())]
    Changed(PathBuf),
    /// A log has bytes that its run did not write.
    #[error(
        "{path} was changed since it was written: something else writes to it, too, and nothing that a run did not \
        write is \
         deleted\nMove it out of the directory, or, if nothing in it is needed: rm {quoted}",
        path = .0.display(),
        quoted = quoted(&.0.to_string_lossy())
    )]
    Log(PathBuf),
    /// A listed file is gone.
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] ReadError),
}

impl Listing {
    /// Reads a directory's own listing.
    ///
    /// # Errors
    /// [`ListingError`] if it is missing or does not parse.
    pub fn read(directory: &Path) -> Result<Self, ListingError> {
        let path = directory.join(LISTING);
        let bytes = match input::read(&path, input::SETTINGS_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ListingError::Unlisted(directory.to_owned()));
            }
            bytes => bytes.map_err(ReadError::of(&path))?,
        };
        // Bytes, not lines, so that reading inverts writing exactly.
        let mut files = BTreeMap::new();
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let entry = std::str::from_utf8(line).ok().and_then(|line| {
                let (digest, name) = line.strip_suffix('\n')?.split_once("  ")?;
                Some((name.to_owned(), digest.parse().ok()?))
            });
            let (name, digest) = entry.ok_or_else(|| ListingError::Line { path: path.clone(), line: index + 1 })?;
            files.insert(name, digest);
        }
        Ok(Self(files))
    }

    /// Parses a listing; none if it does not parse.
    pub fn parse(text: &str) -> Option<Self> {
        let entry = |line: &str| {
            let (digest, name) = line.split_once("  ")?;
            Some((name.to_owned(), digest.parse().ok()?))
        };
        text.split_terminator('\n').map(entry).collect::<Option<_>>().map(Self)
    }

    /// Formats the listing.
    pub fn text(&self) -> String {
        self.0.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect()
    }

    /// Checks that a directory holds exactly these files, byte for byte, and its listing.
    ///
    /// # Errors
    /// [`ListingError`] for the first file that differs.
    pub fn check(&self, directory: &Path) -> Result<(), ListingError> {
        self.check_names(directory)?;
        for (name, digest) in &self.0 {
            let path = directory.join(name);
            match self::digest(&path) {
                Ok(found) if found == *digest => {}
                Ok(_) => return Err(ListingError::Changed(path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ListingError::Missing(path)),
                Err(error) => return Err(ReadError { path, error }.into()),
            }
        }
        Ok(())
    }

    /// Checks that a directory holds no other names than these and its listing.
    ///
    /// # Errors
    /// [`ListingError::Foreign`] for another name.
    pub fn check_names(&self, directory: &Path) -> Result<(), ListingError> {
        for name in walk(directory)? {
            match name {
                Ok(name) if name == LISTING || self.0.contains_key(&name) => {}
                Ok(name) => return Err(ListingError::Foreign(directory.join(name))),
                Err(foreign) => return Err(ListingError::Foreign(foreign)),
            }
        }
        Ok(())
    }

    /// Removes these files, then directories left empty, `directory` itself last. Other files stay, as do files outside
    /// of `directory` that a name leads to: it removes only paths found below `directory`.
    ///
    /// # Errors
    /// Any I/O error but missing files.
    pub fn remove(&self, directory: &Path) -> io::Result<()> {
        let found = match walk(directory) {
            Err(ListingError::Io(ReadError { error, .. })) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(io::Error::other)?,
        };
        let (mut names, mut directories) = (Vec::new(), vec![PathBuf::new()]);
        for entry in found {
            match entry {
                Ok(name) if name == LISTING || self.0.contains_key(&name) => names.push(name),
                Ok(_) => {}
                // A directory that a kill left empty.
                Err(other) => directories.extend(other.strip_prefix(directory).ok().map(Path::to_owned)),
            }
        }
        for name in &names {
            remove_file(&directory.join(name))?;
        }
        directories.retain(|path| self.0.keys().any(|name| Path::new(name).starts_with(path)));
        directories.retain(|path| !directory.join(path).is_symlink());
        directories.extend(names.iter().map(PathBuf::from));
        let mut directories: Vec<&Path> = directories.iter().flat_map(|path| path.ancestors()).collect();
        directories.retain(|path| !names.iter().any(|name| Path::new(name) == *path));
        directories.push(Path::new(""));
        directories.sort_unstable();
        directories.dedup();
        // The empty name, which is `directory` itself, sorts first.
        for below in directories.into_iter().rev() {
            fault::point()?;
            match fs::remove_dir(directory.join(below)) {
                Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Refuses to replace a directory that Precast did not write whole, or that changed since. A missing or empty one may
/// be replaced.
///
/// # Errors
/// [`ListingError`] for the first difference.
pub fn check_replaceable(directory: &Path) -> Result<(), ListingError> {
    match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ReadError::of(directory)(error).into()),
        Ok(metadata) if !metadata.is_dir() => return Err(ListingError::Foreign(directory.to_owned())),
        Ok(_) => {}
    }
    if walk(directory)?.is_empty() {
        return Ok(());
    }
    Listing::read(directory)?.check(directory)
}

/// Returns the files below a directory by relative name, and the paths of everything else (links, empty directories,
/// names that are not UTF-8).
///
/// # Errors
/// [`ListingError::Io`] if a directory cannot be read.
pub fn walk(directory: &Path) -> Result<Vec<Result<String, PathBuf>>, ListingError> {
    let mut found = Vec::new();
    walk_below(directory, "", &mut found)?;
    Ok(found)
}

fn walk_below(directory: &Path, prefix: &str, found: &mut Vec<Result<String, PathBuf>>) -> Result<(), ListingError> {
    let io = |error| ReadError { path: directory.to_owned(), error };
    let mut entries = fs::read_dir(directory).map_err(io)?.collect::<io::Result<Vec<_>>>().map_err(io)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().map_err(io)?);
        match entry.file_name().to_str() {
            Some(name) if kind.is_file() => found.push(Ok(format!("{prefix}{name}"))),
            Some(name) if kind.is_dir() => {
                let before = found.len();
                walk_below(&path, &format!("{prefix}{name}/"), found)?;
                if found.len() == before {
                    found.push(Err(path));
                }
            }
            _ => found.push(Err(path)),
        }
    }
    Ok(())
}

/// Digests a file, read in parts.
///
/// # Errors
/// Any I/O error.
pub fn digest(path: &Path) -> io::Result<Digest> {
    let (mut file, mut hasher) = (input::open(path)?, Hasher::default());
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(hasher.digest()),
            Ok(read) => hasher.update(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, Listing) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        let mut listing = Listing::default();
        for name in ["a", "below/b"] {
            fs::write(dir.path().join(name), name).unwrap();
            listing.0.insert(name.to_owned(), Digest::of(name.as_bytes()));
        }
        fs::write(dir.path().join(LISTING), listing.text()).unwrap();
        (dir, listing)
    }

    #[test]
    fn names_read_back_whatever_they_end_with() {
        let listing = Listing([("a\r".to_owned(), Digest::of(b""))].into());
        assert_eq!(Listing::parse(&listing.text()), Some(listing));
    }

    #[test]
    fn whatever_is_not_as_written_is_named() {
        let (dir, listing) = directory();
        let path = |name: &str| dir.path().join(name);
        assert_eq!(Listing::read(dir.path()).unwrap(), listing);
        check_replaceable(dir.path()).unwrap();
        fs::create_dir(path("empty")).unwrap();
        assert!(matches!(check_replaceable(dir.path()), Err(ListingError::Foreign(at)) if at == path("empty")));
        fs::remove_dir(path("empty")).unwrap();
        std::os::unix::fs::symlink("a", path("link")).unwrap();
        assert!(matches!(check_replaceable(dir.path()), Err(ListingError::Foreign(at)) if at == path("link")));
        fs::remove_file(path("link")).unwrap();
        fs::write(path("below/b"), "x").unwrap();
        assert!(matches!(check_replaceable(dir.path()), Err(ListingError::Changed(at)) if at == path("below/b")));
        fs::remove_file(path("below/b")).unwrap();
        assert!(matches!(check_replaceable(dir.path()), Err(ListingError::Foreign(at)) if at == path("below")));
    }

    #[test]
    fn one_flipped_bit_of_a_listing_is_found() {
        let (dir, _) = directory();
        let path = dir.path().join(LISTING);
        let whole = fs::read(&path).unwrap();
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bytes).unwrap();
            assert!(check_replaceable(dir.path()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn only_what_is_listed_is_removed() {
        let (dir, listing) = directory();
        let run = dir.path().to_owned();
        fs::write(run.join("below/notes"), "mine").unwrap();
        listing.remove(&run).unwrap();
        assert_eq!(walk(&run).unwrap(), [Ok("below/notes".to_owned())]);
        fs::remove_file(run.join("below/notes")).unwrap();
        listing.remove(&run).unwrap();
        assert!(!run.exists());
    }

    #[test]
    fn nothing_outside_is_removed_whatever_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let (run, outside) = (dir.path().join("run"), dir.path().join("outside"));
        for made in [&run, &outside] {
            fs::create_dir(made).unwrap();
            fs::write(made.join("file"), "mine").unwrap();
        }
        fs::create_dir(dir.path().join("empty")).unwrap();
        std::os::unix::fs::symlink(&outside, run.join("link")).unwrap();
        let absolute = outside.join("file").display().to_string();
        let names = ["file", "link/file", "../outside/file", "../empty/none", absolute.as_str()];
        let listing = Listing(names.map(|name| (name.to_owned(), Digest::of(b"mine"))).into());
        listing.remove(&run).unwrap();
        assert!(outside.join("file").exists() && dir.path().join("empty").exists());
        assert!(!run.join("file").exists() && run.join("link").is_symlink());
    }
}
