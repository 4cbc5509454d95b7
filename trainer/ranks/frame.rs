//! What goes over a connection between ranks: frames of a kind, a length and bytes.

use std::io::{self, Read, Write};

/// The most that a frame holds: a rank's list of files, or of digests.
const MOST_BYTES: u32 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Heartbeat,
    /// A part of a collective, or all of them from rank 0.
    Gather,
    /// A rank has failed: JSON.
    Failed,
    /// The sender has done all of its work.
    Leave,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Heartbeat, Self::Gather, Self::Failed, Self::Leave];
}

pub fn write(stream: &mut impl Write, kind: Kind, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MOST_BYTES);
    let length = length.ok_or_else(|| io::Error::other("a frame is too long"))?;
    let mut whole = Vec::with_capacity(bytes.len() + 5);
    whole.push(kind as u8);
    whole.extend(length.to_le_bytes());
    whole.extend(bytes);
    stream.write_all(&whole)
}

pub fn read(stream: &mut impl Read) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let kind = Kind::ALL.get(usize::from(head[0])).copied();
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let (Some(kind), true) = (kind, length <= MOST_BYTES) else { return Err(io::Error::other("no frame of a rank")) };
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok((kind, bytes))
}

/// Lists of bytes in one.
pub fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    let length = |part: &Vec<u8>| (part.len() as u32).to_le_bytes();
    parts.iter().flat_map(|part| length(part).into_iter().chain(part.iter().copied())).collect()
}

/// What was joined; none where it was not.
pub fn split(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        parts.push(part.to_vec());
        bytes = rest;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_lists_read_back() {
        let mut wire = Vec::new();
        for kind in Kind::ALL {
            write(&mut wire, kind, &[kind as u8; 3]).unwrap();
        }
        let mut read_from = &wire[..];
        for kind in Kind::ALL {
            assert_eq!(read(&mut read_from).unwrap(), (kind, vec![kind as u8; 3]));
        }
        assert!(read(&mut &[9, 0, 0, 0, 0][..]).is_err() && read(&mut &[0, 255, 255, 255, 255][..]).is_err());
        let parts = vec![vec![1, 2], Vec::new(), vec![3]];
        assert_eq!(split(&join(&parts)), Some(parts));
        assert_eq!(split(&[9, 0, 0, 0, 1]), None);
    }
}
