//! Reads files that users name: regular files of bounded size. A device, a FIFO or a directory is refused before a byte
//! of it is read.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Size limit of a settings file: `config.json`, `run.toml`, keys, signatures.
pub const SETTINGS_BYTES: u64 = 16 << 20;

/// A file or folder that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {error}", path.display())]
pub struct ReadError {
    /// The file or folder.
    pub path: PathBuf,
    /// Error of the system.
    pub error: io::Error,
}

impl ReadError {
    /// Names what an error of the system is about.
    pub fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { path: path.to_owned(), error }
    }
}

/// Opens a regular file.
///
/// # Errors
/// Any I/O error; [`ErrorKind::InvalidInput`] if it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Without NONBLOCK, opening a FIFO waits for a writer.
    regular(OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?)
}

/// Opens a regular file for locking, or creates it.
///
/// # Errors
/// Those of [`open`].
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(OFlags::NONBLOCK.bits() as i32);
    regular(options.open(path)?)
}

fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let what = match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "no file",
    };
    Err(refused(format!("it is {what}, expected a regular file")))
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// Any I/O error; [`ErrorKind::InvalidInput`] if it is no regular file or is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let too_long = |bytes: u64| refused(format!("it is {bytes} bytes long, at most {most} are read"));
    let bytes = file.metadata()?.len();
    if bytes > most {
        return Err(too_long(bytes));
    }
    let mut content = Vec::with_capacity(bytes as usize);
    // It may have grown since, and files of /proc report size 0.
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most { Err(too_long(content.len() as u64)) } else { Ok(content) }
}

/// Like [`read`], for text.
///
/// # Errors
/// Those of [`read`]; [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

/// Reads a text of a program's own, whole.
///
/// # Errors
/// [`ReadError`] with its path.
pub fn text(path: &Path) -> Result<String, ReadError> {
    std::fs::read_to_string(path).map_err(ReadError::of(path))
}

/// Reads the first bytes of a regular file: all of a shorter one.
///
/// # Errors
/// Those of [`open`].
pub fn start(path: &Path, bytes: usize) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(bytes);
    open(path)?.take(bytes as u64).read_to_end(&mut start)?;
    Ok(start)
}

fn refused(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(path: &Path) -> String {
        read(path, 16).unwrap_err().to_string()
    }

    #[test]
    fn regular_files_of_a_bounded_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [b'x'; 16]).unwrap();
        assert_eq!(read_text(&path, 16).unwrap(), "x".repeat(16));
        std::fs::write(&path, [b'x'; 17]).unwrap();
        assert_eq!(reason(&path), "it is 17 bytes long, at most 16 are read");
        // Reports size 0 and has content.
        assert_eq!(reason(Path::new("/proc/self/status")), "it is 17 bytes long, at most 16 are read");
        std::fs::write(&path, [0xFF]).unwrap();
        assert_eq!(read_text(&path, 16).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn nothing_else_is_waited_for_or_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(reason(dir.path()), "it is a directory, expected a regular file");
        assert_eq!(reason(Path::new("/dev/zero")), "it is a device, expected a regular file");
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(reason(&fifo), "it is a FIFO, expected a regular file");
        rustix::fs::chmod(&fifo, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(open_or_create(&fifo).unwrap_err().to_string(), "it is a FIFO, expected a regular file");
        open_or_create(&dir.path().join("new")).unwrap();
        assert_eq!(read(&dir.path().join("none"), 16).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
