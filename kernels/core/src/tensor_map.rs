//! Values of `tensor_map` fields in a parameter block.

use crate::dtype::Dtype;

/// A matrix without gaps between rows, and the box of it that a kernel copies at a time.
///
/// Only the CUDA driver can encode one, and only once addresses are known: the preparation of a launch does
/// (`cuTensorMapEncodeTiled`). In shared memory the rows of a box follow each other in the swizzle of their size, 64 or
/// 128 bytes; the part of a box outside of the matrix reads as 0 and is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Byte offset of the `tensor_map` in the parameter block.
    pub offset: usize,
    /// Byte offset of the matrix's address in the parameter block.
    pub address: usize,
    /// Type of the matrix's elements.
    pub dtype: Dtype,
    /// Rows and columns of the matrix; a row is a multiple of 16 bytes.
    pub shape: [u32; 2],
    /// Rows and columns of a box.
    pub box_shape: [u32; 2],
}
