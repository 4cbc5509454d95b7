//! Reading little-endian values in order, never past the end.

use std::fmt::Display;

use super::fault::Fault;

/// A place in the file's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at an offset, which is inside the bytes.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the next read starts.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Where the next read starts, as errors report it.
    pub fn offset(&self) -> u64 {
        self.at as u64
    }

    /// The next bytes; `what` they are goes into the error.
    pub fn take(&mut self, len_bytes: u64, what: &dyn Display) -> Result<&'a [u8], Fault> {
        let taken = usize::try_from(len_bytes).ok().and_then(|len| self.bytes[self.at..].get(..len));
        let taken = taken.ok_or_else(|| Fault::Truncated {
            what: what.to_string(),
            offset: self.offset(),
            needed_bytes: len_bytes,
            file_bytes: self.bytes.len() as u64,
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &dyn Display) -> Result<[u8; N], Fault> {
        self.take(N as u64, what).map(|taken| taken.try_into().expect("as many bytes as are taken"))
    }

    /// The next byte.
    pub fn u8(&mut self, what: &dyn Display) -> Result<u8, Fault> {
        self.array(what).map(u8::from_le_bytes)
    }

    /// The next two bytes.
    pub fn u16(&mut self, what: &dyn Display) -> Result<u16, Fault> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self, what: &dyn Display) -> Result<u32, Fault> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self, what: &dyn Display) -> Result<u64, Fault> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The next string: a length in bytes, then UTF-8.
    pub fn string(&mut self, what: &dyn Display) -> Result<&'a str, Fault> {
        let len_bytes = self.u64(what)?;
        self.text(len_bytes, what)
    }

    /// The next string of so many bytes of UTF-8.
    pub fn text(&mut self, len_bytes: u64, what: &dyn Display) -> Result<&'a str, Fault> {
        let offset = self.offset();
        let text = self.take(len_bytes, what)?;
        std::str::from_utf8(text).map_err(|_| Fault::damaged(format_args!("{what} at byte {offset} is not UTF-8")))
    }
}
