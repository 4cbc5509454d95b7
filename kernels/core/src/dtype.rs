//! Element types of device buffers.

use std::fmt;

/// Type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// Brain float: the upper half of an IEEE single.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// Token ids, positions and the words of scalar blocks.
    U32,
    /// Operands of int8 GEMMs: -127 to 127, in units of the row's scale.
    I8,
}

impl Dtype {
    /// Returns the size of one element, bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::I8 => 1,
            Dtype::Bf16 => 2,
            Dtype::F32 | Dtype::U32 => 4,
        }
    }

    /// Returns the elements that a kernel moves at a time in rows of `row`: 16 bytes of them if rows are a multiple of
    /// that, so that each vector is aligned, else one.
    pub fn vector_width(self, row: u32) -> u32 {
        let width = 16 / self.bytes() as u32;
        if row.is_multiple_of(width) { width } else { 1 }
    }

    /// Returns the name in keys and messages.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::U32 => "u32",
            Dtype::I8 => "i8",
        }
    }

    /// Returns the type's name in the CUDA sources.
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
