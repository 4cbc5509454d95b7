//! The container: header, metadata, index of tensors, and where their values lie.

use std::fmt::Display;
use std::ops::Range;

use precast_kernels::Block;

use crate::checkpoint::checksum::{self, CHECKSUM_BYTES};
use crate::checkpoint::cursor::Cursor;
use crate::checkpoint::fault::Fault;
use crate::checkpoint::kind::Kind;
use crate::checkpoint::store::Tensor;

/// Starts every APR file of version 2.
pub(in crate::checkpoint) const MAGIC: [u8; 4] = *b"APR\0";
const VERSION: (u8, u8) = (2, 0);
pub(super) const HEADER_BYTES: u64 = 64;
/// Bytes of the header that hold its own checksum.
const CHECKSUM: Range<usize> = 40..44;
/// Alignment of sections and tensors, bytes.
const ALIGNMENT_BYTES: u64 = 64;
const MOST_METADATA_BYTES: u64 = 16 << 20;
/// Tensors of a file: a dense model of 126 layers has 1137.
const MOST_TENSORS: u32 = 1 << 16;
const MOST_NAME_BYTES: u16 = 256;
const MOST_DIMENSIONS: u8 = 8;
/// Metadata and index of the limits above.
const MOST_HEAD_BYTES: u64 = 64 << 20;

const ROW_MAJOR: u16 = 0x400;
/// Flags that change nothing of what is read here: SIGNED, QUANTIZED, FILTERBANK, MODEL_CARD, STREAMING, HAS_VOCAB and
/// ROW_MAJOR.
const TAKEN: u16 = 0x8 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 | ROW_MAJOR;
const REFUSED: [(u16, &str, &str); 5] = [
    (0x1, "LZ4", "compressed files are not read; write the model uncompressed"),
    (0x2, "ZSTD", "compressed files are not read; write the model uncompressed"),
    (0x4, "ENCRYPTED", "encrypted files are not read; decrypt the model"),
    (0x10, "SHARDED", "the model is spread over files; write it as one"),
    (0x800, "COLUMN_MAJOR", "matrices must lie row by row; convert the model again"),
];

/// Names of the types that are read.
const SUPPORTED: &str = "F32, F16, BF16, Q4_K, Q6_K, AprQ4, AprQ8";

/// Fields of the first 64 bytes.
pub(super) struct Header {
    tensors: u32,
    metadata_bytes: u64,
    index_offset: u64,
    /// How much of the file comes before the tensors' values.
    pub data_offset: u64,
}

/// A tensor of the index.
pub(super) struct Named {
    pub name: String,
    /// Offset of its entry in the file.
    pub offset: u64,
    pub tensor: Tensor,
    /// End of its values in the file.
    end: u64,
}

/// The error for a tensor whose shape, size or place cannot be.
fn refuse(name: &str, offset: u64, shape: &[u64], reason: impl Display) -> Fault {
    Fault::Wrong(format!("tensor {name} at byte {offset} of shape {shape:?}: {reason}"))
}

impl Header {
    /// Reads the header of a file of so many bytes, given its first 64, or all of a shorter one.
    pub fn read(head: &[u8], file_bytes: u64) -> Result<Self, Fault> {
        if !head.starts_with(&MAGIC) {
            let found = &head[..head.len().min(MAGIC.len())];
            return Err(Fault::Wrong(format!("not an APR file: it starts with {found:02x?}, expected 41 50 52 00")));
        }
        let header = Cursor::new(head, 0).number::<[u8; HEADER_BYTES as usize]>(&"the header")?;
        let mut cursor = Cursor::new(&header, MAGIC.len());
        let (major, minor) = (cursor.number(&"the version")?, cursor.number(&"the version")?);
        if (major, minor) != VERSION {
            return Err(Fault::Wrong(format!(
                "APR version {major}.{minor} at byte 4 is not supported: 2.0 is. Convert the model again"
            )));
        }
        let said = Cursor::new(&header, CHECKSUM.start).number(&"the header's checksum")?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header[..CHECKSUM.start]);
        hasher.update(&header[CHECKSUM.end..]);
        checksum::compare("the header", said, hasher.finalize())?;
        flags(cursor.number(&"the flags")?)?;
        let read = Self {
            tensors: cursor.number(&"the number of tensors")?,
            metadata_bytes: {
                let metadata_offset = cursor.number(&"the metadata's offset")?;
                layout("the metadata's offset", 12, metadata_offset, metadata_offset == HEADER_BYTES, "64")?;
                cursor.number::<u32>(&"the metadata's size")?.into()
            },
            index_offset: cursor.number(&"the index's offset")?,
            data_offset: cursor.number(&"the data's offset")?,
        };
        let unused = header[CHECKSUM.end..].iter().find(|byte| **byte != 0).copied().unwrap_or(0);
        layout("a byte of the header's last 20", CHECKSUM.end as u64, unused.into(), unused == 0, "0")?;
        read.check(file_bytes)?;
        Ok(read)
    }

    /// Checks that the sections follow each other inside the file.
    fn check(&self, file_bytes: u64) -> Result<(), Fault> {
        let most = MOST_TENSORS;
        layout("the number of tensors", 8, self.tensors.into(), self.tensors <= most, &format!("at most {most}"))?;
        let (bytes, most) = (self.metadata_bytes, MOST_METADATA_BYTES);
        layout("the metadata's size", 20, bytes, bytes <= most, &format!("at most {most}"))?;
        let expected = (HEADER_BYTES + bytes).next_multiple_of(ALIGNMENT_BYTES);
        layout("the index's offset", 24, self.index_offset, self.index_offset == expected, &expected.to_string())?;
        let (found, least, most) = (self.data_offset, self.index_offset, MOST_HEAD_BYTES);
        let fits = found.is_multiple_of(ALIGNMENT_BYTES) && (least..=most).contains(&found);
        layout("the data's offset", 32, found, fits, &format!("a multiple of 64 from {least} to {most}"))?;
        let needed_bytes = found + CHECKSUM_BYTES;
        if needed_bytes > file_bytes {
            let what = "header, metadata, index and checksum".to_owned();
            return Err(Fault::Truncated { what, offset: 0, needed_bytes, file_bytes });
        }
        Ok(())
    }

    /// The metadata's bytes.
    pub fn metadata<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[HEADER_BYTES as usize..][..self.metadata_bytes as usize]
    }

    /// Names and tensors of the index. Every range of values lies inside the file, before its checksum.
    pub fn index(&self, head: &[u8], file_bytes: u64) -> Result<Vec<Named>, Fault> {
        let mut cursor = Cursor::new(head, self.index_offset as usize);
        let mut tensors: Vec<Named> = Vec::new();
        for index in 0..self.tensors {
            let next = self.entry(&mut cursor, index, file_bytes)?;
            if let Some(Named { name: before, .. }) = tensors.last().filter(|before| before.name >= next.name) {
                let Named { name, offset, .. } = next;
                return Err(Fault::damaged(format_args!(
                    "tensor {name} at byte {offset} comes after {before}: names must ascend"
                )));
            }
            tensors.push(next);
        }
        let expected = cursor.offset().next_multiple_of(ALIGNMENT_BYTES);
        layout("the data's offset", 32, self.data_offset, self.data_offset == expected, &expected.to_string())?;
        apart(&tensors)?;
        // The file ends with a checksum, right after the last tensor or after what fills its last 64 bytes.
        let end = tensors.iter().map(|tensor| tensor.end).max().unwrap_or(self.data_offset);
        let ends = [end, end.next_multiple_of(ALIGNMENT_BYTES)].map(|end| end + CHECKSUM_BYTES);
        if !ends.contains(&file_bytes) {
            let what = "the file, by its index,".to_owned();
            return Err(Fault::Truncated { what, offset: 0, needed_bytes: ends[1], file_bytes });
        }
        Ok(tensors)
    }

    fn entry(&self, cursor: &mut Cursor<'_>, index: u32, file_bytes: u64) -> Result<Named, Fault> {
        let offset = cursor.offset();
        let what = &format_args!("the name of tensor {} of {}", index + 1, self.tensors);
        let name_bytes: u16 = cursor.number(what)?;
        let expected = format!("at most {MOST_NAME_BYTES}");
        layout("a name's length", offset, name_bytes.into(), name_bytes <= MOST_NAME_BYTES, &expected)?;
        let name = cursor.text(name_bytes.into(), what)?.to_owned();
        let what = &format_args!("the index's entry of tensor {name}");
        let code = cursor.number(what)?;
        let rank: u8 = cursor.number(what)?;
        let expected = format!("at most {MOST_DIMENSIONS}");
        layout("a number of dimensions", offset, rank.into(), rank <= MOST_DIMENSIONS, &expected)?;
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.push(cursor.number(what)?);
        }
        let (data_offset, size_bytes): (u64, u64) = (cursor.number(what)?, cursor.number(what)?);
        let refuse = |reason: String| refuse(&name, offset, &shape, reason);
        let elements = shape.iter().try_fold(1_u64, |product, dimension| product.checked_mul(*dimension));
        let elements = elements.ok_or_else(|| refuse("the product of its dimensions overflows".to_owned()))?;
        if !data_offset.is_multiple_of(ALIGNMENT_BYTES) {
            return Err(refuse(format!("its values start at {data_offset} of the data, not a multiple of 64")));
        }
        let format = format_of(code);
        let kind = kind_of(code)
            .ok_or_else(|| format!("tensor {name} at byte {offset} is of type {format}: supported are {}", SUPPORTED));
        if let Ok(kind) = kind {
            let columns = shape.last().copied().unwrap_or(1);
            let is_whole = !matches!(kind, Kind::Block(_)) || columns.is_multiple_of(kind.elems());
            let expected = kind.bytes(elements).filter(|_| is_whole);
            let expected = expected.ok_or_else(|| refuse(format!("rows must be whole blocks of {kind}")))?;
            if expected != size_bytes {
                return Err(refuse(format!("{size_bytes} bytes, and as {kind} it takes {expected}")));
            }
        }
        let start = self.data_offset.saturating_add(data_offset);
        let end = start.saturating_add(size_bytes);
        if end > file_bytes - CHECKSUM_BYTES {
            let what = format!("tensor {name} (its entry of the index is at byte {offset})");
            return Err(Fault::Truncated { what, offset: start, needed_bytes: size_bytes, file_bytes });
        }
        Ok(Named { name, offset, tensor: Tensor { file: 0, start, shape, format, kind }, end })
    }
}

/// Refuses tensors that share bytes. The index is sorted by names, and values lie in any order.
fn apart(tensors: &[Named]) -> Result<(), Fault> {
    let mut placed: Vec<&Named> = tensors.iter().filter(|one| one.tensor.start < one.end).collect();
    placed.sort_by_key(|one| one.tensor.start);
    match placed.windows(2).find(|pair| pair[1].tensor.start < pair[0].end) {
        None => Ok(()),
        Some(pair) => {
            let Named { name, offset, tensor, .. } = pair[1];
            let reason = format!("its values lie in those of {}: the file is damaged, fetch it again", pair[0].name);
            Err(refuse(name, *offset, &tensor.shape, reason))
        }
    }
}

/// Refuses flags under which the file has another layout or meaning.
fn flags(flags: u16) -> Result<(), Fault> {
    let unknown = flags & !TAKEN;
    let no_order = "it is not set, so nothing says how matrices lie; convert the model again";
    let (bit, name, remedy) = match REFUSED.into_iter().find(|(bit, ..)| flags & bit != 0) {
        Some(refused) => refused,
        None if unknown != 0 => {
            (1 << unknown.trailing_zeros(), "without a name", "this program does not know what it changes")
        }
        None if flags & ROW_MAJOR == 0 => (ROW_MAJOR, "ROW_MAJOR", no_order),
        None => return Ok(()),
    };
    Err(Fault::Wrong(format!("flag {name} ({bit:#x}) at byte 6: {remedy}")))
}

/// Refuses a number of the container that is not `right`.
fn layout(what: &str, offset: u64, found: u64, right: bool, expected: &str) -> Result<(), Fault> {
    let wrong = || Fault::damaged(format_args!("{what} at byte {offset} is {found}, expected {expected}"));
    if right { Ok(()) } else { Err(wrong()) }
}

/// The type with this code, if it is one that is read. Older writers say 8 and 9 for AprQ4 and AprQ8.
fn kind_of(code: u8) -> Option<Kind> {
    Some(match code {
        0 => Kind::F32,
        1 => Kind::F16,
        30 => Kind::Bf16,
        12 => Kind::Block(Block::Q4_K),
        14 => Kind::Block(Block::Q6_K),
        8 | 128 => Kind::AprQ4,
        9 | 129 => Kind::AprQ8,
        _ => return None,
    })
}

/// How errors name the type with this code.
fn format_of(code: u8) -> String {
    match (kind_of(code), code) {
        (Some(known), _) => known.to_string(),
        (None, 3) => "F64".to_owned(),
        (None, 4) => "I32".to_owned(),
        (None, 5) => "I64".to_owned(),
        (None, 6) => "I8".to_owned(),
        (None, 7) => "U8".to_owned(),
        (None, code) => format!("{code} (which APR does not define)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_that_share_bytes_are_refused() {
        let check = |places: [Range<u64>; 3]| {
            let named = |(name, values): (&str, Range<u64>)| {
                let (format, kind) = (String::new(), Err(String::new()));
                let tensor = Tensor { file: 0, start: values.start, shape: vec![1], format, kind };
                Named { name: name.to_owned(), offset: 9, tensor, end: values.end }
            };
            apart(&["a", "b", "c"].into_iter().zip(places).map(named).collect::<Vec<_>>())
        };
        // In any order, and with a place for what fills up.
        check([128..192, 0..60, 64..128]).unwrap();
        for (places, name, before) in [
            ([0..65, 64..128, 128..192], "b", "a"),
            ([128..192, 0..64, 128..129], "c", "a"),
            ([0..192, 64..65, 192..193], "b", "a"),
        ] {
            let fault = check(places).unwrap_err().to_string();
            let expected = format!("tensor {name} at byte 9 of shape [1]: its values lie in those of {before}");
            assert!(fault.starts_with(&expected), "{fault}");
        }
    }
}
