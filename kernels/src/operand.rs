//! The buffers that a launch touches.

use crate::dtype::Dtype;
use crate::format::Format;

/// What a launch does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it and leaves it unchanged.
    Read,
    /// Writes every element and reads none.
    Write,
    /// Reads and writes, or writes only some elements.
    ReadWrite,
    /// Works in it: what is there before means nothing to the launch, and what it leaves means nothing to others.
    Scratch,
}

impl Access {
    /// Whether the old content matters.
    pub fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite)
    }

    /// Whether the content changes.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    /// Whether what is there afterwards is a result.
    pub fn is_output(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite)
    }
}

/// What a checked launch puts into an operand: fresh random values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// All bytes 0.
    Zeros,
    /// Standard normal times a factor.
    Normal(f32),
    /// Uniform in a range.
    Uniform(f32, f32),
    /// Token ids below a bound.
    Ids(u32),
    /// Token ids below a bound, about one in four masked.
    Targets(u32),
    /// Token ids below a bound, ascending, with runs.
    SortedIds(u32),
    /// A permutation that ascends within each run of the operand named.
    PositionsOf(&'static str),
    /// A `micro_scalars` block: a loss scale, and accumulation on or off.
    Micro,
    /// An `update_scalars` block.
    Update,
    /// A `step_metrics` block that does not skip.
    Metrics,
    /// Integers from -127 to 127; of each 64 neighbors eight are one of these two.
    Int8,
    /// Rows of so many elements, each of one kind: standard normal, all zeros, with an outlier of a thousand, of the largest finite
    /// magnitude, of magnitudes far below any that counts.
    Rows(u32),
    /// The same kinds, by column, of rows of so many elements.
    Columns(u32),
    /// Blocks of any numbers, with finite scales: of both signs, subnormal and zero ones among them.
    Blocks,
}

impl Content {
    /// What an operand of this format holds unless its kernel says more.
    pub fn of(format: Format) -> Self {
        match format {
            Format::Dense(Dtype::I8) => Content::Int8,
            Format::Dense(_) => Content::Normal(1.0),
            Format::Block(_) => Content::Blocks,
        }
    }
}

/// A buffer a launch touches, and the field of the parameter block that points at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    pub name: &'static str,
    /// Byte offset of the address in the parameter block.
    pub offset: usize,
    /// What the launch does with it.
    pub access: Access,
    /// How its elements are stored.
    pub format: Format,
    /// Number of elements.
    pub elems: u64,
    /// Random content for a checked launch.
    pub content: Content,
}

impl Operand {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.format.bytes(self.elems)
    }

    /// The same operand with other random content in checks.
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
