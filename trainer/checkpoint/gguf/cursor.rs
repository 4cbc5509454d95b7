//! Reading little-endian values in order, never past the end.

use std::fmt::Display;

use super::error::Fault;

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
    pub(super) fn take(&mut self, len_bytes: u64, what: &dyn Display) -> Result<&'a [u8], Fault> {
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
    pub(super) fn array<const N: usize>(&mut self, what: &dyn Display) -> Result<[u8; N], Fault> {
        match self.bytes[self.at..].first_chunk() {
            Some(taken) => {
                self.at += N;
                Ok(*taken)
            }
            None => Err(self.truncated(N as u64, what)),
        }
    }

    /// The next four bytes.
    pub(super) fn u32(&mut self, what: &dyn Display) -> Result<u32, Fault> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub(super) fn u64(&mut self, what: &dyn Display) -> Result<u64, Fault> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The next string: a length in bytes, then UTF-8.
    pub(super) fn string(&mut self, what: &dyn Display) -> Result<&'a str, Fault> {
        let offset = self.offset();
        let len_bytes = self.u64(what)?;
        let text = self.take(len_bytes, what)?;
        std::str::from_utf8(text).map_err(|_| Fault::Utf8 { what: what.to_string(), offset })
    }

    fn truncated(&self, needed_bytes: u64, what: &dyn Display) -> Fault {
        Fault::Truncated {
            what: what.to_string(),
            offset: self.offset(),
            needed_bytes,
            file_bytes: self.bytes.len() as u64,
        }
    }
}
