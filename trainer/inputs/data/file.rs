//! Files that are mapped, not read: what they take of memory is the system's.

use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;
use precast_system::input;

/// The bytes of a regular file.
pub(crate) struct Mapped(Option<Mmap>);

/// Maps a regular file.
///
/// # Errors
/// Any I/O error; anything but a regular file is one.
pub(crate) fn map(path: &Path) -> io::Result<Mapped> {
    let file = input::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Mapped(None));
    }
    // SAFETY: the map is only read. A file that another program cuts short meanwhile raises SIGBUS, as for every
    // program that maps files.
    Ok(Mapped(Some(unsafe { Mmap::map(&file)? })))
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
