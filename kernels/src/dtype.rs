//! Element types of device buffers.

use std::fmt;

/// Element type of a device buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// Brain float: the upper half of an IEEE single.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// Token ids, positions and the words of scalar blocks.
    U32,
    /// What products in int8 multiply: -127 to 127, in units of a scale that the row has.
    I8,
}

impl Dtype {
    /// Size of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::I8 => 1,
            Dtype::Bf16 => 2,
            Dtype::F32 | Dtype::U32 => 4,
        }
    }

    /// Elements a kernel moves at a time where rows have so many: 16 bytes of them if rows are a multiple of that,
    /// so that each is aligned, or one.
    pub fn vector_width(self, row: u32) -> u32 {
        let width = 16 / self.bytes() as u32;
        if row.is_multiple_of(width) { width } else { 1 }
    }

    /// The name used in keys and messages.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::U32 => "u32",
            Dtype::I8 => "i8",
        }
    }

    /// The type's name in the CUDA sources.
    pub fn c_name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "float",
            Dtype::U32 => "uint32_t",
            Dtype::I8 => "int8_t",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
