//! Matrix multiplications as BLAS libraries define them, so that a library may replace a kernel.

use crate::dtype::Dtype;

/// A column-major matrix without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub address: u64,
    pub rows: u32,
    pub columns: u32,
    pub dtype: Dtype,
}

/// Addend of a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addend {
    Nothing,
    /// A matrix of the result's shape and dtype.
    Matrix(u64),
    /// The result's previous content, unless the u32 at this address is 0: then the result is overwritten.
    Accumulated(u64),
}

/// `d = a b (+ bias) (+ addend)`: sums in f32, rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlasGemm {
    pub a: Matrix,
    /// True if `a` is multiplied as its transpose.
    pub a_transposed: bool,
    pub b: Matrix,
    pub b_transposed: bool,
    pub d: Matrix,
    /// One element per row of `d`, in its dtype, added to each column.
    pub bias: Option<u64>,
    pub addend: Addend,
}
