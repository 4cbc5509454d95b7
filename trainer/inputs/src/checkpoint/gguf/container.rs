//! The container: magic, version, counts, metadata, the table of tensors, and where their values lie.

use std::collections::HashSet;
use std::ops::Range;

use super::metadata::{Metadata, at_most, twice};
use super::types;
use crate::checkpoint::cursor::Cursor;
use crate::checkpoint::fault::Fault;
use crate::checkpoint::store::Tensor;

/// Starts every GGUF file.
pub(in crate::checkpoint) const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: Range<u32> = 2..4;
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT_BYTES: u64 = 32;
/// Metadata and table of tensors: those of the largest vocabularies take 20 MB.
pub(super) const MOST_HEADER_BYTES: u64 = 256 << 20;
/// Tensors of a file: a dense model of 126 layers has 1137.
const MOST_TENSORS: u64 = 1 << 16;
/// Most dimensions a tensor of ggml has.
const MAX_DIMENSIONS: u32 = 4;

/// What the file says before its data.
pub(super) struct Header {
    pub(super) metadata: Metadata,
    /// In the file's order, with names that differ.
    pub(super) tensors: Vec<Named>,
}

/// A tensor by its name in the file.
pub(super) struct Named {
    pub(super) name: String,
    /// Offset of its row of the table.
    pub(super) offset: u64,
    pub(super) tensor: Tensor,
}

impl Header {
    /// Reads the header of a file of so many bytes, given its first ones. Every byte range it hands out lies inside the
    /// file.
    pub(super) fn read(head: &[u8], file_bytes: u64) -> Result<Self, Fault> {
        let (metadata, rows, data_start, alignment_bytes) = Self::tables(head)?;
        let mut tensors: Vec<Named> = Vec::with_capacity(rows.len());
        // Where the values of the next tensor start, from the start of the data: ggml, too, takes no other place.
        let mut next = 0;
        for row in rows {
            let Row { data_offset, .. } = row;
            let (named, size_bytes) = row.locate(file_bytes, data_start, alignment_bytes)?;
            // How much a type that is not read takes is not known: what follows it lies where it says, and not before.
            let is_right = match tensors.last() {
                Some(before) if before.tensor.kind.is_err() => data_offset >= next,
                _ => data_offset == next,
            };
            if !is_right {
                let Named { name, offset, .. } = named;
                return Err(Fault::damaged(format_args!(
                    "tensor {name} at byte {offset}: its values start at offset {data_offset} of the data, expected \
                    {next}, behind \
                     those of the tensor before"
                )));
            }
            next = data_offset.saturating_add(size_bytes).checked_next_multiple_of(alignment_bytes).unwrap_or(u64::MAX);
            tensors.push(named);
        }
        Ok(Self { metadata, tensors })
    }

    /// Metadata, the rows of the table, where the data starts, and the alignment in it.
    fn tables(file: &[u8]) -> Result<(Metadata, Vec<Row<'_>>, u64, u64), Fault> {
        let mut cursor = Cursor::new(file, 0);
        if !file.starts_with(&MAGIC) {
            let found = &file[..file.len().min(MAGIC.len())];
            return Err(Fault::Wrong(format!(
                "not a GGUF file: it starts with {found:02x?}, expected the bytes of \"GGUF\""
            )));
        }
        cursor.number::<[u8; 4]>(&"the magic")?;
        let version: u32 = cursor.number(&"the version")?;
        if !VERSIONS.contains(&version) {
            let remedy = match version.swap_bytes() {
                1..=3 => "The file is big-endian: convert it with gguf-py's gguf_convert_endian.py",
                _ => "Convert the model again with a current llama.cpp (convert_hf_to_gguf.py)",
            };
            return Err(Fault::Wrong(format!(
                "GGUF version {version} at byte 4 is not supported: 2 and 3 are. {remedy}"
            )));
        }
        let tensor_count = cursor.number(&"the number of tensors")?;
        at_most(&"tensors", cursor.offset() - 8, tensor_count, MOST_TENSORS)?;
        let key_count = cursor.number(&"the number of metadata keys")?;
        let metadata = Metadata::read(&mut cursor, key_count)?;
        let alignment_bytes = metadata.integer(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT_BYTES);
        if !alignment_bytes.is_power_of_two() {
            return Err(metadata.refuse(ALIGNMENT_KEY, alignment_bytes, "it must be a power of two"));
        }

        let mut rows = Vec::new();
        let mut names = HashSet::new();
        for index in 0..tensor_count {
            let row = Row::read(&mut cursor, index, tensor_count)?;
            if !names.insert(row.name) {
                return Err(twice("tensor", row.name, row.offset));
            }
            rows.push(row);
        }
        let data_start = cursor.offset().checked_next_multiple_of(alignment_bytes).unwrap_or(u64::MAX);
        Ok((metadata, rows, data_start, alignment_bytes))
    }
}

/// A row of the table as it is written; where the data starts is known only after the last one.
struct Row<'a> {
    name: &'a str,
    offset: u64,
    /// Elements along each dimension, columns first.
    dimensions: Vec<u64>,
    code: u32,
    /// From the start of the data.
    data_offset: u64,
}

impl<'a> Row<'a> {
    fn read(cursor: &mut Cursor<'a>, index: u64, count: u64) -> Result<Self, Fault> {
        let offset = cursor.offset();
        let name = cursor.string(&format_args!("the name of tensor {} of {count}", index + 1))?;
        let what = &format_args!("the table's row of tensor {name}");
        let rank = cursor.number(what)?;
        let mut row = Self { name, offset, dimensions: Vec::new(), code: 0, data_offset: 0 };
        if !(1..=MAX_DIMENSIONS).contains(&rank) {
            return Err(row.bad_shape(format!("{rank} dimensions, expected 1 to {MAX_DIMENSIONS}")));
        }
        for _ in 0..rank {
            row.dimensions.push(cursor.number(what)?);
        }
        row.code = cursor.number(what)?;
        row.data_offset = cursor.number(what)?;
        Ok(row)
    }

    fn bad_shape(&self, reason: impl std::fmt::Display) -> Fault {
        let Self { name, offset, dimensions, .. } = self;
        Fault::Wrong(format!("tensor {name} at byte {offset} has shape {dimensions:?} (columns first): {reason}"))
    }

    /// Checks the shape and finds the values; returns the bytes that they take at least, too.
    fn locate(self, file_bytes: u64, data_start: u64, alignment: u64) -> Result<(Named, u64), Fault> {
        let Self { name, offset, code, data_offset, ref dimensions } = self;
        let elements = dimensions.iter().try_fold(1_usize, |elements, dimension| {
            usize::try_from(*dimension).ok().filter(|dimension| *dimension > 0)?.checked_mul(elements)
        });
        let elements = elements.ok_or_else(|| self.bad_shape("a dimension is 0, or their product overflows"))? as u64;
        if !data_offset.is_multiple_of(alignment) {
            return Err(Fault::damaged(format_args!(
                "tensor {name} at byte {offset}: its values start at offset {data_offset} of the data, not a \
                multiple of \
                 the file's alignment {alignment}"
            )));
        }
        let format = types::name(code);
        let kind = types::of_code(code).ok_or_else(|| {
            let supported = types::read().map(|kind| kind.to_string()).collect::<Vec<_>>().join(", ");
            format!("tensor {name} at byte {offset} is of type {format}: supported are {supported}")
        });
        let size_bytes = match kind {
            Ok(kind) if !dimensions[0].is_multiple_of(kind.elems()) => {
                return Err(self.bad_shape(format_args!("{kind} packs {} values of a row together", kind.elems())));
            }
            Ok(kind) => kind.bytes(elements).unwrap_or(u64::MAX),
            // No type takes less than a bit a value.
            Err(_) => elements / 8,
        };
        let start = data_start.saturating_add(data_offset);
        if start.saturating_add(size_bytes) > file_bytes {
            let what = format!("tensor {name} (its row of the table is at byte {offset})");
            return Err(Fault::Truncated { what, offset: start, needed_bytes: size_bytes, file_bytes });
        }
        let shape = dimensions.iter().rev().copied().collect();
        let tensor = Tensor { file: 0, start, shape, format, kind };
        Ok((Named { name: name.to_owned(), offset, tensor }, size_bytes))
    }
}
