//! Reads published files from a directory or a tar file. Sizes are known before a file is opened, and checked before it
//! is read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use precast_system::input;

use super::error::{LayoutError, malformed};

/// Most members of a tar file with a layout.
const MEMBERS: usize = 4096;

/// A directory, or a tar file with the offsets of its members.
pub struct Archive {
    path: PathBuf,
    members: Option<BTreeMap<String, Member>>,
}

/// A regular file in a tar file.
struct Member {
    offset: u64,
    bytes: u64,
}

impl Archive {
    /// Opens a directory or a tar file. Of a tar file it reads only the headers.
    ///
    /// # Errors
    /// [`LayoutError`] if the path is neither.
    pub fn open(path: &Path) -> Result<Self, LayoutError> {
        let kind = fs::metadata(path).map_err(|error| io_error(path, error))?;
        let members = if kind.is_dir() { None } else { Some(members(path)?) };
        Ok(Self { path: path.to_owned(), members })
    }

    /// Returns the size of a file, bytes.
    ///
    /// # Errors
    /// [`LayoutError::Missing`] if no regular file has this name.
    pub fn size(&self, name: &str) -> Result<u64, LayoutError> {
        let missing = || LayoutError::Missing(name.to_owned());
        match &self.members {
            Some(members) => Ok(members.get(name).ok_or_else(missing)?.bytes),
            None => match fs::metadata(self.path.join(name)) {
                Ok(file) if file.is_file() => Ok(file.len()),
                Ok(_) => Err(malformed(name, "it is no regular file")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing()),
                Err(error) => Err(io_error(&self.path.join(name), error)),
            },
        }
    }

    /// Reads a file of at most `limit` bytes.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`], before any byte is read.
    pub fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, LayoutError> {
        let bytes = self.size(name)?;
        if bytes > limit {
            return Err(LayoutError::TooLarge { file: name.to_owned(), found: bytes, limit });
        }
        let member = self.members.as_ref().and_then(|members| members.get(name));
        let (path, offset) = match member {
            Some(member) => (self.path.clone(), member.offset),
            None => (self.path.join(name), 0),
        };
        let read = || -> io::Result<Vec<u8>> {
            let mut file = input::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut content = Vec::new();
            file.take(bytes).read_to_end(&mut content)?;
            Ok(content)
        };
        read().map_err(|error| io_error(&path, error))
    }

    /// Returns the names of a tar file's members, or every path below a directory, non-regular files included.
    ///
    /// # Errors
    /// [`LayoutError::Io`] if a directory cannot be listed.
    pub fn names(&self) -> Result<Vec<String>, LayoutError> {
        match &self.members {
            Some(members) => Ok(members.keys().cloned().collect()),
            None => {
                let mut names = Vec::new();
                walk(&self.path, Path::new(""), &mut names).map_err(|error| io_error(&self.path, error))?;
                Ok(names)
            }
        }
    }
}

fn io_error(path: &Path, error: io::Error) -> LayoutError {
    LayoutError::Io { what: "read", path: path.to_owned(), error }
}

/// Does not follow links; lists an empty directory itself.
fn walk(root: &Path, below: &Path, names: &mut Vec<String>) -> io::Result<()> {
    let entries = fs::read_dir(root.join(below))?.collect::<io::Result<Vec<_>>>()?;
    if entries.is_empty() {
        names.push(below.to_string_lossy().into_owned());
    }
    for entry in entries {
        let name = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            walk(root, &name, names)?;
        } else {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// Reads the headers; nothing is unpacked, and a name is only a key of a map. Extension headers are skipped, so name
/// and size come from a member's own header.
fn members(path: &Path) -> Result<BTreeMap<String, Member>, LayoutError> {
    let failed = |error| io_error(path, error);
    let wrong = |what: String| malformed(&path.display().to_string(), what);
    let file = input::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => wrong(error.to_string()),
        _ => failed(error),
    })?;
    let end = file.metadata().map_err(failed)?;
    let mut archive = tar::Archive::new(file);
    let mut members = BTreeMap::new();
    for (count, entry) in archive.entries_with_seek().map_err(failed)?.raw(true).enumerate() {
        let entry = entry.map_err(failed)?;
        if count == MEMBERS {
            return Err(wrong(format!("it has more than {MEMBERS} members, and no layout has")));
        }
        let bytes = entry.header().entry_size().map_err(failed)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
        let offset = entry.raw_file_position();
        if offset.checked_add(bytes).is_none_or(|member_end| member_end > end.len()) {
            return Err(wrong(format!("{name} is {bytes} bytes by its header, which the file does not hold")));
        }
        if entry.header().entry_type().is_file() && members.insert(name.clone(), Member { offset, bytes }).is_some() {
            return Err(wrong(format!("{name} is there twice")));
        }
    }
    Ok(members)
}
