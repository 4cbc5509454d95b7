//! Frames of a connection between ranks: a kind, a length and bytes.

use std::io::{self, Read};

/// The most that a frame holds: a rank's list of files, or of digests.
const MOST_BYTES: u32 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Heartbeat,
    /// A part of a collective; from rank 0 each of them, by rank.
    Gather,
    /// A rank has failed: JSON.
    Failed,
    /// The sender has done all of its work.
    Leave,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Heartbeat, Self::Gather, Self::Failed, Self::Leave];
}

/// Returns the bytes of a frame.
///
/// # Errors
/// A frame that is too long.
pub fn of(kind: Kind, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MOST_BYTES);
    let length = length.ok_or_else(|| io::Error::other("a frame is too long"))?;
    Ok([&[kind as u8], &length.to_le_bytes()[..], bytes].concat())
}

/// Reads a frame.
///
/// # Errors
/// A stream that fails or ends, and bytes that are no frame.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back() {
        let mut wire = Vec::new();
        for kind in Kind::ALL {
            wire.extend(of(kind, &[kind as u8; 3]).unwrap());
        }
        let mut read_from = &wire[..];
        for kind in Kind::ALL {
            assert_eq!(read(&mut read_from).unwrap(), (kind, vec![kind as u8; 3]));
        }
        assert!(read(&mut &[9, 0, 0, 0, 0][..]).is_err() && read(&mut &[0, 255, 255, 255, 255][..]).is_err());
    }
}
