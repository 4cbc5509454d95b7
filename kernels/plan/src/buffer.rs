//! Buffers of a plan, and ranges of them.

use precast_kernels::Format;
use serde::Serialize;

/// Alignment of buffers, bytes.
const ALIGN: u64 = 256;

/// Offset bits of a virtual address: a buffer may be as large as 1 TiB.
const OFFSET_BITS: u32 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// Purpose of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Frozen teacher weights.
    TeacherWeights,
    /// Scratch for the teacher's dequantized matrices.
    TeacherScratch,
    /// The student's weights: in the precision of the run, or frozen ones as stored.
    StudentWeights,
    /// Scratch for the frozen student's dequantized matrices.
    StudentScratch,
    /// The student's adapters in the precision of the run.
    Adapters,
    /// fp32 master weights, unless they are the weights themselves.
    MasterWeights,
    /// First and second moments.
    Moments,
    Gradients,
    /// Workspaces of cuBLASLt's GEMMs.
    CublasWorkspaces,
    /// cuBLASLt's own memory, in no buffer.
    Cublas,
    /// The pool of keys and values that decoding attends to.
    KeysAndValues,
    /// Rotary tables, inputs, scalars and metrics.
    Inputs,
    /// Activations, their gradients, logits and workspaces, which share memory as their lifetimes allow.
    Activations,
}

impl Category {
    /// Every category, in table order.
    pub const ALL: [Category; 13] = [
        Category::TeacherWeights,
        Category::TeacherScratch,
        Category::StudentWeights,
        Category::StudentScratch,
        Category::Adapters,
        Category::MasterWeights,
        Category::Moments,
        Category::Gradients,
        Category::CublasWorkspaces,
        Category::Cublas,
        Category::KeysAndValues,
        Category::Inputs,
        Category::Activations,
    ];

    /// Returns the name in the memory table.
    pub fn name(self) -> &'static str {
        match self {
            Category::TeacherWeights => "teacher weights",
            Category::TeacherScratch => "teacher scratch",
            Category::StudentWeights => "student weights",
            Category::StudentScratch => "student scratch",
            Category::Adapters => "adapters",
            Category::MasterWeights => "master weights",
            Category::Moments => "moments",
            Category::Gradients => "gradients",
            Category::CublasWorkspaces => "cublas workspaces",
            Category::Cublas => "cublas itself",
            Category::KeysAndValues => "keys and values",
            Category::Inputs => "inputs and tables",
            Category::Activations => "activations",
        }
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
    pub category: Category,
    /// Storage format of its elements.
    pub format: Format,
    pub elems: u64,
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
    pub buffer: BufferId,
    /// Offset in the buffer, bytes.
    pub offset: u64,
    /// Storage format of its elements.
    pub format: Format,
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
