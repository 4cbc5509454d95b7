//! Sequences with their rows on their way from one process to another.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Read, Write};

use super::filling::Entry;
use super::key::Key;
use super::manifest::Made;

/// Sends sequences, after their number; none says that no more follow.
///
/// # Errors
/// Any I/O error.
pub fn send_entries(to: &mut impl Write, entries: &[Entry<'_>]) -> io::Result<()> {
    to.write_all(&(entries.len() as u32).to_le_bytes())?;
    for Entry { key, rows, checksum } in entries {
        to.write_all(&[&key.0[..], checksum, &(rows.len() as u64).to_le_bytes()].concat())?;
        to.write_all(rows)?;
    }
    to.flush()
}

/// Receives what [`send_entries`] has sent, for such a cache.
///
/// # Errors
/// [`ErrorKind::InvalidData`] of rows that no sequence has, and any other I/O error.
pub fn receive_entries(from: &mut impl Read, made: &Made) -> io::Result<Vec<Entry<'static>>> {
    let count = u32::from_le_bytes(take(from)?);
    (0..count).map(|_| receive_entry(from, made)).collect()
}

fn receive_entry(from: &mut impl Read, made: &Made) -> io::Result<Entry<'static>> {
    let (key, checksum, bytes) = (Key(take(from)?), take(from)?, u64::from_le_bytes(take(from)?));
    if !made.is_of_rows(bytes) {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("{bytes} bytes are no rows of a sequence")));
    }
    let mut rows = vec![0; bytes as usize];
    from.read_exact(&mut rows)?;
    Ok(Entry { key, rows: Cow::Owned(rows), checksum })
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
