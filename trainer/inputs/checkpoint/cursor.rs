//! Reading little-endian values in order, never past the end.

use std::fmt::Display;

/// Bytes that cannot be read as what they should be. Offsets are in bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file ends early, or a length in it is absurd.
    #[error(
        "{what} at byte {offset} takes {needed_bytes} bytes and the file ends at byte {file_bytes}: \
         it is cut short or damaged, fetch it again"
    )]
    Truncated {
        /// What was being read.
        what: String,
        /// Where it starts.
        offset: u64,
        /// How long it is.
        needed_bytes: u64,
        /// Size of the file.
        file_bytes: u64,
    },
    /// A string that is not UTF-8.
    #[error("{what} at byte {offset} is not UTF-8: the file is damaged, fetch it again")]
    Utf8 {
        /// What was being read.
        what: String,
        /// Where it starts.
        offset: u64,
    },
}

/// A place in the file's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at an offset, which is inside the bytes.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the next read starts.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Where the next read starts, as errors report it.
    pub(super) fn offset(&self) -> u64 {
        self.at as u64
    }

    /// The next bytes; `what` they are goes into the error.
    pub(super) fn take(&mut self, len_bytes: u64, what: &dyn Display) -> Result<&'a [u8], Unreadable> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(len_bytes).ok().and_then(|len| rest.get(..len)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => Err(self.truncated(len_bytes, what)),
        }
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &dyn Display) -> Result<[u8; N], Unreadable> {
        match self.bytes[self.at..].first_chunk() {
            Some(taken) => {
                self.at += N;
                Ok(*taken)
            }
            None => Err(self.truncated(N as u64, what)),
        }
    }

    /// The next byte.
    pub(super) fn u8(&mut self, what: &dyn Display) -> Result<u8, Unreadable> {
        self.array(what).map(u8::from_le_bytes)
    }

    /// The next two bytes.
    pub(super) fn u16(&mut self, what: &dyn Display) -> Result<u16, Unreadable> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub(super) fn u32(&mut self, what: &dyn Display) -> Result<u32, Unreadable> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub(super) fn u64(&mut self, what: &dyn Display) -> Result<u64, Unreadable> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The next string: a length in bytes, then UTF-8.
    pub(super) fn string(&mut self, what: &dyn Display) -> Result<&'a str, Unreadable> {
        let len_bytes = self.u64(what)?;
        self.text(len_bytes, what)
    }

    /// The next string of so many bytes of UTF-8.
    pub(super) fn text(&mut self, len_bytes: u64, what: &dyn Display) -> Result<&'a str, Unreadable> {
        let offset = self.offset();
        let text = self.take(len_bytes, what)?;
        std::str::from_utf8(text).map_err(|_| Unreadable::Utf8 { what: what.to_string(), offset })
    }

    fn truncated(&self, needed_bytes: u64, what: &dyn Display) -> Unreadable {
        Unreadable::Truncated {
            what: what.to_string(),
            offset: self.offset(),
            needed_bytes,
            file_bytes: self.bytes.len() as u64,
        }
    }
}
