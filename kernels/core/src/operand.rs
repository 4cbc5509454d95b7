//! The buffers that a launch touches.

use crate::dtype::Dtype;
use crate::format::Format;

/// A launch's access to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it unchanged.
    Read,
    /// Writes every element and reads none.
    Write,
    /// Writes some elements and reads none; the others stay as they are.
    WritePart,
    /// Reads and writes; the elements that it does not write stay as they are.
    ReadWrite,
    /// Uses it as scratch: neither its earlier nor its later content matters to others.
    Scratch,
}

impl Access {
    /// True if the old content matters.
    pub fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite)
    }

    /// True if the content changes.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    /// True if the new content is a result.
    pub fn is_output(self) -> bool {
        matches!(self, Access::Write | Access::WritePart | Access::ReadWrite)
    }
}

/// Random content of an operand in a checked launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// All bits 0.
    Zeros,
    /// Standard normal times a factor.
    Normal(f32),
    /// Uniform in a range.
    Uniform(f32, f32),
    /// Token ids below a bound.
    Ids(u32),
    /// Token ids below a bound, about one in four of them `u32::MAX`, which is none.
    Targets(u32),
    /// Slots below a bound, each once, about one in four of them `u32::MAX`, which is none.
    Slots(u32),
    /// Runs of rows of a slot, of at most so many rows; slots below a bound, each in one run, and about one run in four
    /// of `u32::MAX`, which is no slot.
    Runs(u32, u32),
    /// Positions below a bound, consecutive in each run of the operand named. A run that begins between multiples of
    /// the last number ends between the same two.
    Steps(&'static str, u32, u32),
    /// Sequences that take so many places end to end, of at most so many tokens: [`sequences`](crate::sequences()).
    Sequences(u32, u32),
    /// Token ids below a bound, ascending, with runs.
    SortedIds(u32),
    /// Numbers below that of elements, each once.
    Permutation,
    /// A list of the tiles of so many rows that lie by expert, of so many experts: their number and zeros; then rows of
    /// an expert, of at most so many, as expert, first row, last row's successor and 0; then zeros. Some experts have
    /// no row, and some lists not all rows.
    ExpertTiles(u32, u64, u32),
    /// A permutation that ascends within each run of the operand named.
    PositionsOf(&'static str),
    /// A block of scalars, of these fields.
    Scalars(&'static [Scalar]),
    /// Integers from -127 to 127; of each 64 neighbors eight are one of these two.
    Int8,
    /// Rows of this many elements, each of one kind: standard normal, all zeros, with an outlier of a thousand, of the
    /// largest finite magnitude, of negligibly small magnitudes.
    Rows(u32),
    /// Rows of this many logits, some of them with ties, and about one in eight with one that is not finite.
    Logits(u32),
    /// Rows of so many token ids below a bound, each once in its row, and none, `u32::MAX`, behind the last.
    Distinct(u32, u32),
    /// Rows of this many natural logarithms of probabilities that add up to 1, some of them too small for one: of
    /// tokens as [`Self::Distinct`] has them, and of all others.
    LogProbs(u32),
    /// Few distinct values, so that many are equal: 1, zeros and NaN of both signs.
    Few,
    /// Like [`Self::Rows`], with a kind per column.
    Columns(u32),
    /// Random blocks with finite scales, of both signs, some subnormal, some zero.
    Blocks,
}

/// A field of a block of scalars, 4 bytes, as a checked launch gets it. Words are compared exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// This float.
    Float(f32),
    /// A float, uniform in a range.
    Uniform(f32, f32),
    /// This word.
    Word(u32),
    /// A word below a bound.
    Below(u32),
}

impl Content {
    /// Returns the default content of an operand in this format.
    pub fn of(format: Format) -> Self {
        match format {
            Format::Dense(Dtype::I8) => Content::Int8,
            Format::Dense(_) => Content::Normal(1.0),
            Format::Block(_) => Content::Blocks,
        }
    }
}

/// A buffer that a launch touches, and the field of the parameter block with its address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    /// Name of its field in the parameter block.
    pub name: &'static str,
    /// Byte offset of the address in the parameter block.
    pub offset: usize,
    /// Access of a launch to it.
    pub access: Access,
    /// Storage format of its elements.
    pub format: Format,
    /// Number of elements.
    pub elems: u64,
    /// Content in a checked launch.
    pub content: Content,
}

impl Operand {
    /// Returns its size, bytes.
    pub fn bytes(&self) -> u64 {
        self.format.bytes(self.elems)
    }

    /// Replaces its content in checks.
    pub fn with(mut self, content: Content) -> Self {
        self.content = content;
        self
    }
}

/// Builds an [`Operand`] from a field of a parameter block.
#[macro_export]
macro_rules! operand {
    ($access:ident $params:ty, $field:ident: $format:expr, $elems:expr) => {{
        let format = $crate::Format::from($format);
        $crate::operand::Operand {
            name: stringify!($field),
            offset: std::mem::offset_of!($params, $field),
            access: $crate::operand::Access::$access,
            format,
            elems: $elems as u64,
            content: $crate::operand::Content::of(format),
        }
    }};
}
