//! Reading little-endian values in order, never past the end.

use std::fmt::Display;

use bytemuck::AnyBitPattern;

use super::fault::Fault;

/// A place in the file's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// Offset of the next read.
    pub at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at an offset, which is inside the bytes.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Returns the offset of the next read, as errors report it.
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

    /// The next number, or as many bytes as an array has: as memory of this machine has them, the lowest byte first.
    pub fn number<T: AnyBitPattern>(&mut self, what: &dyn Display) -> Result<T, Fault> {
        self.take(size_of::<T>() as u64, what).map(bytemuck::pod_read_unaligned)
    }

    /// The next string: a length in bytes, then UTF-8.
    pub fn string(&mut self, what: &dyn Display) -> Result<&'a str, Fault> {
        let len_bytes = self.number(what)?;
        self.text(len_bytes, what)
    }

    /// The next string of so many bytes of UTF-8.
    pub fn text(&mut self, len_bytes: u64, what: &dyn Display) -> Result<&'a str, Fault> {
        let offset = self.offset();
        let text = self.take(len_bytes, what)?;
        std::str::from_utf8(text).map_err(|_| Fault::damaged(format_args!("{what} at byte {offset} is not UTF-8")))
    }
}
