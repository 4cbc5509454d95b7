//! Records of `index.bin`: where the rows of each sequence lie.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};

use precast_fatbins::Digest;

use super::key::Key;
use super::manifest::Made;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;

/// A sequence's rows in `hidden.bin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Bytes before its first row.
    pub offset: u64,
    pub rows: u32,
    pub checksum: [u8; 16],
}

impl Span {
    /// Returns the offset behind its last row; none if no file has it.
    pub fn end(&self, row_bytes: u64) -> Option<u64> {
        u64::from(self.rows).checked_mul(row_bytes)?.checked_add(self.offset)
    }
}

/// Returns the checksum of rows: 16 bytes of their SHA-256.
pub(super) fn checksum(rows: &[u8]) -> [u8; 16] {
    *Digest::of(rows).0.first_chunk().expect("a digest has 32 bytes")
}

pub(super) fn encode(key: &Key, span: &Span) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..32].copy_from_slice(&key.0);
    bytes[32..40].copy_from_slice(&span.offset.to_le_bytes());
    bytes[40..44].copy_from_slice(&span.rows.to_le_bytes());
    bytes[48..].copy_from_slice(&span.checksum);
    let check = check(&bytes);
    bytes[44..48].copy_from_slice(&check.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<(Key, Span)> {
    let part = |at: usize| bytes[at..].first_chunk::<4>().map(|part| u32::from_le_bytes(*part));
    let span = Span {
        offset: u64::from_le_bytes(*bytes[32..].first_chunk()?),
        rows: part(40)?,
        checksum: *bytes[48..].first_chunk()?,
    };
    (part(44)? == check(bytes)).then_some((Key(*bytes.first_chunk()?), span))
}

/// Returns the CRC-32 of a record but for the four bytes that it is stored in.
fn check(bytes: &[u8; RECORD_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..44]);
    hasher.update(&bytes[48..]);
    hasher.finalize()
}

/// Reads records in order, as long as each is whole and its rows lie where those of the one before end.
pub(super) struct Records {
    file: BufReader<File>,
    row_bytes: u64,
    most_rows: u32,
    /// Where the rows of the next record begin.
    pub end: u64,
}

impl Records {
    /// Reads a file from its start, of rows of such a cache.
    pub fn new(file: File, made: &Made) -> Self {
        Self { file: BufReader::new(file), row_bytes: made.row_bytes(), most_rows: made.seq_len, end: 0 }
    }

    /// Returns the next record, and none at the end or where what follows cannot be one.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn next(&mut self) -> io::Result<Option<(Key, Span)>> {
        let mut bytes = [0; RECORD_BYTES];
        match self.file.read_exact(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let Some((key, span)) = decode(&bytes) else { return Ok(None) };
        let follows = span.offset == self.end && (1..=self.most_rows).contains(&span.rows);
        let end = span.end(self.row_bytes).filter(|_| follows);
        self.end = end.unwrap_or(self.end);
        Ok(end.map(|_| (key, span)))
    }
}
