//! Files of weights: heads are read, tensors are mapped or read, as who asks for them wants it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use memmap2::Mmap;
use precast_system::input;
use rustix::fs::{Advice, OFlags, fadvise};

/// Alignment of offsets, lengths and memory of direct reads, bytes: no device asks for more.
const DIRECT_ALIGNMENT: usize = 4096;

/// The way by which bytes of a file come into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// They are read into memory of the process, by way of the page cache.
    #[default]
    Read,
    /// They stay in the page cache, which is mapped.
    Map,
    /// They are read past the page cache, for machines on which what that takes is missing elsewhere. Where a file
    /// system cannot do that, they are read and the cache is told to forget them.
    Direct,
}

/// Memory that parts of files are read into, and how.
#[derive(Debug, Default)]
pub(super) struct Raw {
    pub access: Access,
    memory: Vec<u8>,
}

impl Raw {
    pub fn new(access: Access) -> Self {
        Self { access, memory: Vec::new() }
    }

    /// So many bytes that start where direct reads may, to be written whole.
    fn aligned(&mut self, bytes: usize) -> &mut [u8] {
        if self.memory.len() < bytes + DIRECT_ALIGNMENT {
            // Nothing of the old content is kept.
            self.memory = Vec::new();
            self.memory.resize(bytes + DIRECT_ALIGNMENT, 0);
        }
        let start = self.memory.as_ptr().align_offset(DIRECT_ALIGNMENT);
        &mut self.memory[start..start + bytes]
    }
}

/// A regular file of weights. It must not be written to for as long as the value lives.
#[derive(Debug)]
pub(super) struct WeightFile {
    file: File,
    pub bytes: u64,
    map: OnceLock<Mmap>,
    /// The same file, to be read past the page cache; none where that cannot be.
    direct: OnceLock<Option<File>>,
}

impl WeightFile {
    /// Opens a file; reads nothing.
    ///
    /// # Errors
    /// Any I/O error; anything but a regular file is one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = input::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes, map: OnceLock::new(), direct: OnceLock::new() })
    }

    /// The first `most` bytes, or all of a shorter file.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn head(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut head = vec![0; self.bytes.min(most) as usize];
        self.file.read_exact_at(&mut head, 0)?;
        Ok(head)
    }

    /// Bytes of the file, which lie inside of it: in `raw`, or mapped if that says so.
    ///
    /// # Errors
    /// Any I/O error; a file that has become shorter is one, unless it is mapped.
    pub fn part<'a>(&'a self, range: Range<u64>, raw: &'a mut Raw) -> io::Result<&'a [u8]> {
        let bytes = (range.end - range.start) as usize;
        match raw.access {
            Access::Map => Ok(&self.map()?[range.start as usize..range.end as usize]),
            Access::Read => {
                let memory = raw.aligned(bytes);
                self.file.read_exact_at(memory, range.start)?;
                Ok(memory)
            }
            Access::Direct => self.direct_part(range, raw),
        }
    }

    /// Has the page cache forget what it holds of the file.
    pub fn forget(&self) {
        // It is a request: what cannot be forgotten stays.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn map(&self) -> io::Result<&Mmap> {
        if self.map.get().is_none() {
            // SAFETY: the map is only read. A file that another program cuts short meanwhile raises SIGBUS, as for
            // every program that maps files.
            let map = unsafe { Mmap::map(&self.file)? };
            // Another thread that was first has mapped the same.
            let _ = self.map.set(map);
        }
        Ok(self.map.get().expect("it has just been set"))
    }

    fn direct_part<'a>(&self, range: Range<u64>, raw: &'a mut Raw) -> io::Result<&'a [u8]> {
        let alignment = DIRECT_ALIGNMENT as u64;
        let start = range.start / alignment * alignment;
        let memory = raw.aligned((range.end - start).next_multiple_of(alignment) as usize);
        let wanted = (range.start - start) as usize..(range.end - start) as usize;
        let read = self.direct().map(|file| read_aligned(file, memory, start, wanted.end));
        match read {
            Some(Ok(())) => {}
            // The file system opens files so and reads them otherwise, or does not at all.
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(error),
            Some(Err(_)) | None => {
                self.file.read_exact_at(&mut memory[wanted.clone()], range.start)?;
                let length = std::num::NonZero::new(wanted.end as u64);
                fadvise(&self.file, start, length, Advice::DontNeed)?;
            }
        }
        Ok(&memory[wanted])
    }

    fn direct(&self) -> Option<&File> {
        let open = || {
            // The same file, whatever has its name by now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            std::fs::OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }
}

/// Reads at least `wanted` bytes from an aligned place into aligned memory: the last read of a file ends where it ends.
fn read_aligned(file: &File, memory: &mut [u8], start: u64, wanted: usize) -> io::Result<()> {
    let mut done = 0;
    while done < wanted {
        match file.read_at(&mut memory[done..], start + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way gives the same bytes, at any offset and of any length.
    #[test]
    fn parts_are_the_same_however_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let content: Vec<u8> = (0..40_961_u32).map(|i| ((i * 31) >> 3) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = WeightFile::open(&path).unwrap();
        assert_eq!((file.bytes, file.head(10).unwrap()), (40_961, content[..10].to_vec()));
        assert_eq!(file.head(1 << 40).unwrap(), content);
        for access in [Access::Read, Access::Map, Access::Direct] {
            let mut raw = Raw::new(access);
            for (start, end) in
                [(0, 40_961), (0, 1), (4095, 4097), (4096, 8192), (40_960, 40_961), (77, 77), (5, 40_000)]
            {
                let part = file.part(start..end, &mut raw).unwrap();
                assert_eq!(part, &content[start as usize..end as usize], "{access:?} {start}..{end}");
            }
        }
    }

    #[test]
    fn a_file_that_has_become_shorter_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [1; 9000]).unwrap();
        let file = WeightFile::open(&path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
        for access in [Access::Read, Access::Direct] {
            let error = file.part(0..9000, &mut Raw::new(access)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{access:?}");
        }
    }
}
