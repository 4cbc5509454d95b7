//! The container: magic, version, counts, metadata, the table of tensors, and where their values lie.

use std::collections::HashSet;
use std::ops::Range;

use super::blocks::BlockType;
use super::error::Fault;
use super::metadata::{Metadata, at_most};
use crate::inputs::checkpoint::cursor::{Cursor, Unreadable};

/// Starts every GGUF file.
pub(super) const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: Range<u32> = 2..4;
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT_BYTES: u64 = 32;
/// Metadata and table of tensors: those of the largest vocabularies take 20 MB.
pub(super) const MOST_HEADER_BYTES: usize = 256 << 20;
/// Tensors of a file: a dense model of 126 layers has 1137.
const MOST_TENSORS: u64 = 1 << 16;
/// Most dimensions a tensor of ggml has.
const MAX_DIMENSIONS: u32 = 4;

/// What the file says before its data.
pub(super) struct Header {
    pub(super) metadata: Metadata,
    /// In the file's order, with names that differ.
    pub(super) tensors: Vec<Tensor>,
}

/// A row of the table of tensors.
pub(super) struct Tensor {
    /// In the file.
    pub(super) name: String,
    /// Where its row starts in the file.
    pub(super) offset: u64,
    /// Rows first, as Hugging Face has it; the file has columns first.
    pub(super) shape: Vec<u64>,
    /// Product of the shape.
    pub(super) elements: usize,
    pub(super) values: Values,
}

/// How and where a tensor's values are stored.
pub(super) enum Values {
    /// Blocks of a type that is read, at these bytes of the file.
    Blocks(BlockType, Range<u64>),
    /// A type that is not read, by its code in the file.
    Unsupported(u32),
}

impl Tensor {
    /// The type of its values and where they are.
    pub(super) fn blocks(&self) -> Result<(BlockType, Range<u64>), Fault> {
        match &self.values {
            Values::Blocks(kind, bytes) => Ok((*kind, bytes.clone())),
            Values::Unsupported(code) => {
                Err(Fault::TensorType { tensor: self.name.clone(), offset: self.offset, code: *code })
            }
        }
    }
}

impl Header {
    /// Reads the header of a file of so many bytes, given its first ones: all, or as many as [`MOST_HEADER_BYTES`], unless the
    /// header ends before. Every byte range it hands out lies inside the file.
    pub(super) fn read(head: &[u8], file_bytes: u64) -> Result<Self, Fault> {
        let (metadata, rows, data_start, alignment_bytes) = Self::tables(head).map_err(|fault| match fault {
            Fault::Unreadable(Unreadable::Truncated { .. }) if (head.len() as u64) < file_bytes => {
                Fault::LongHeader { most: MOST_HEADER_BYTES }
            }
            fault => fault,
        })?;
        let mut tensors = Vec::with_capacity(rows.len());
        // Where the values of the next tensor start, from the start of the data: ggml, too, takes no other place.
        let mut next = 0;
        for row in rows {
            let data_offset = row.data_offset;
            let tensor = row.locate(file_bytes, data_start, alignment_bytes)?;
            // How much a type that is not read takes is not known: what follows it lies where it says, and not before.
            let is_right = match tensors.last() {
                Some(Tensor { values: Values::Unsupported(_), .. }) => data_offset >= next,
                _ => data_offset == next,
            };
            if !is_right {
                let Tensor { name, offset, .. } = tensor;
                return Err(Fault::Place { tensor: name, offset, data_offset, expected: next });
            }
            let size_bytes = match &tensor.values {
                Values::Blocks(_, bytes) => bytes.end - bytes.start,
                Values::Unsupported(_) => least_bytes(tensor.elements),
            };
            next = data_offset.saturating_add(size_bytes).checked_next_multiple_of(alignment_bytes).unwrap_or(u64::MAX);
            tensors.push(tensor);
        }
        Ok(Self { metadata, tensors })
    }

    /// Metadata, the rows of the table, where the data starts, and the alignment in it.
    fn tables(file: &[u8]) -> Result<(Metadata, Vec<Row<'_>>, u64, u64), Fault> {
        let mut cursor = Cursor::new(file, 0);
        if !file.starts_with(&MAGIC) {
            return Err(Fault::Magic { found: file[..file.len().min(MAGIC.len())].to_vec() });
        }
        cursor.array::<4>(&"the magic")?;
        let version = cursor.u32(&"the version")?;
        if !VERSIONS.contains(&version) {
            return Err(Fault::Version { found: version });
        }
        let tensor_count = cursor.u64(&"the number of tensors")?;
        at_most(&"tensors", cursor.offset() - 8, tensor_count, MOST_TENSORS)?;
        let key_count = cursor.u64(&"the number of metadata keys")?;
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
                return Err(Fault::Duplicate { what: "tensor", name: row.name.to_owned(), offset: row.offset });
            }
            rows.push(row);
        }
        let data_start = cursor.offset().checked_next_multiple_of(alignment_bytes).unwrap_or(u64::MAX);
        Ok((metadata, rows, data_start, alignment_bytes))
    }
}

/// Bytes that so many values take at least: no type takes less than a bit a value.
fn least_bytes(elements: usize) -> u64 {
    (elements / 8) as u64
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
        let rank = cursor.u32(what)?;
        let mut row = Self { name, offset, dimensions: Vec::new(), code: 0, data_offset: 0 };
        if !(1..=MAX_DIMENSIONS).contains(&rank) {
            return Err(row.bad_shape(format!("{rank} dimensions, expected 1 to {MAX_DIMENSIONS}")));
        }
        for _ in 0..rank {
            row.dimensions.push(cursor.u64(what)?);
        }
        row.code = cursor.u32(what)?;
        row.data_offset = cursor.u64(what)?;
        Ok(row)
    }

    fn bad_shape(&self, reason: impl Into<String>) -> Fault {
        Fault::Shape {
            tensor: self.name.to_owned(),
            offset: self.offset,
            shape: self.dimensions.clone(),
            reason: reason.into(),
        }
    }

    /// Checks the shape and finds the values.
    fn locate(self, file_bytes: u64, data_start: u64, alignment: u64) -> Result<Tensor, Fault> {
        let elements = self.dimensions.iter().try_fold(1_usize, |elements, dimension| {
            usize::try_from(*dimension).ok().filter(|dimension| *dimension > 0)?.checked_mul(elements)
        });
        let elements = elements.ok_or_else(|| self.bad_shape("a dimension is 0, or their product overflows"))?;
        if !self.data_offset.is_multiple_of(alignment) {
            let Self { name, offset, data_offset, .. } = self;
            return Err(Fault::Misaligned { tensor: name.to_owned(), offset, data_offset, alignment });
        }
        let values = match BlockType::from_code(self.code) {
            Some(kind) => {
                if !self.dimensions[0].is_multiple_of(kind.len() as u64) {
                    let reason = format!("{} packs {} values of a row together", kind.name(), kind.len());
                    return Err(self.bad_shape(reason));
                }
                let block_count = (elements / kind.len()) as u64;
                let size_bytes = block_count.saturating_mul(kind.bytes() as u64);
                Values::Blocks(kind, self.range(file_bytes, data_start, size_bytes)?)
            }
            None => {
                self.range(file_bytes, data_start, least_bytes(elements))?;
                Values::Unsupported(self.code)
            }
        };
        let shape = self.dimensions.iter().rev().copied().collect();
        Ok(Tensor { name: self.name.to_owned(), offset: self.offset, shape, elements, values })
    }

    /// The bytes of the file that hold the values.
    fn range(&self, file_bytes: u64, data_start: u64, size_bytes: u64) -> Result<Range<u64>, Fault> {
        let start = data_start.saturating_add(self.data_offset);
        let end = start.saturating_add(size_bytes);
        if end > file_bytes {
            let what = format!("tensor {} (its row of the table is at byte {})", self.name, self.offset);
            return Err(Unreadable::Truncated { what, offset: start, needed_bytes: size_bytes, file_bytes }.into());
        }
        Ok(start..end)
    }
}
