//! Buffers of a plan, and ranges of them.

use serde::{Serialize, Serializer};

use crate::Format;

/// Alignment of buffers, bytes.
const ALIGN: u64 = 256;

/// Offset bits of a virtual address: a buffer may be as large as 1 TiB.
const OFFSET_BITS: u32 = 40;

/// Number of a buffer in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// Purpose of a buffer: a row of the memory table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Category {
    /// Place in the memory table, ascending.
    pub rank: u8,
    /// Name in JSON: `student_weights`.
    pub key: &'static str,
    /// Name in the memory table: `student weights`.
    pub name: &'static str,
}

impl Category {
    /// Activations, their gradients and workspaces, which share memory as their lifetimes allow.
    pub const ACTIVATIONS: Self = Self { rank: u8::MAX, key: "activations", name: "activations" };
    /// cuBLASLt's own memory, in no buffer.
    pub const CUBLAS: Self = Self { rank: 100, key: "cublas", name: "cublas itself" };
}

impl Serialize for Category {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key)
    }
}

/// Span in which a buffer keeps its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as the plan is run.
    Persistent,
    /// While the phases of one stage run, in any order. Stages share memory.
    Stage,
    /// From its first node to its last, in one phase. Those of a phase share memory as far as they do not meet.
    Transient,
}

/// A named range of device memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Name for messages and tests: `student.layers.3.qkv`.
    pub name: String,
    /// Purpose, a row of the memory table.
    pub category: Category,
    /// Storage format of its elements.
    pub format: Format,
    /// Number of elements.
    pub elems: u64,
    /// Span in which it keeps its content.
    pub lifetime: Lifetime,
    /// True if the host writes it before its phase or reads it after: a transient one then lives all through the phase.
    pub host: bool,
    /// Offset in the arena, bytes.
    pub offset: u64,
}

impl Buffer {
    /// Size limit of a buffer, bytes.
    pub(crate) const MOST_BYTES: u64 = 1 << OFFSET_BITS;

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.format.bytes(self.elems)
    }

    /// True if no other buffer ever uses its memory.
    pub fn is_persistent(&self) -> bool {
        self.lifetime == Lifetime::Persistent
    }

    /// Returns the bytes that it takes in the arena, padded to align the next buffer.
    pub fn reserved_bytes(&self) -> u64 {
        self.bytes().next_multiple_of(ALIGN)
    }
}

/// A range of elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Buffer that it is a range of.
    pub buffer: BufferId,
    /// Offset in the buffer, bytes.
    pub offset: u64,
    /// Storage format of its elements.
    pub format: Format,
    /// Number of elements.
    pub elems: u64,
}

impl From<Tensor> for u64 {
    fn from(tensor: Tensor) -> Self {
        tensor.address()
    }
}

impl Tensor {
    /// Size in bytes.
    pub fn bytes(self) -> u64 {
        self.format.bytes(self.elems)
    }

    /// Returns the virtual address of the first element: the buffer's number in the upper 24 bits, the offset in the
    /// lower 40.
    pub fn address(self) -> u64 {
        (u64::from(self.buffer.0) + 1) << OFFSET_BITS | self.offset
    }

    /// Decodes a virtual address to the buffer and the offset in it; none for 0.
    pub(crate) fn at(address: u64) -> Option<(BufferId, u64)> {
        let buffer = (address >> OFFSET_BITS).checked_sub(1)?;
        Some((BufferId(buffer as u32), address & ((1 << OFFSET_BITS) - 1)))
    }

    /// Returns a range of its elements.
    ///
    /// # Panics
    /// If the range reaches past the tensor.
    pub fn slice(self, start: u64, elems: u64) -> Self {
        assert!(start + elems <= self.elems, "slice {start}+{elems} of {} elements", self.elems);
        Self { offset: self.offset + self.format.bytes(start), elems, ..self }
    }

    /// Joins this tensor and the next if they are adjacent and of one format.
    pub fn join(self, next: Self) -> Option<Self> {
        let adjacent = self.buffer == next.buffer && self.offset + self.bytes() == next.offset;
        (adjacent && self.format == next.format).then_some(Self { elems: self.elems + next.elems, ..self })
    }
}
