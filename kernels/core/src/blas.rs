//! Matrix multiplications as BLAS libraries define them, so that a library may replace a kernel.

use crate::dtype::Dtype;

/// A column-major matrix without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Address of the first element.
    pub address: u64,
    /// Rows, elements.
    pub rows: u32,
    /// Columns, elements.
    pub columns: u32,
    /// Type of its elements.
    pub dtype: Dtype,
}

/// Addend of a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addend {
    /// Nothing is added.
    Nothing,
    /// A matrix of the result's shape and dtype.
    Matrix(u64),
    /// The result's previous content, unless the u32 at this address is 0: then the result is overwritten.
    Accumulated(u64),
}

/// `d = a b (+ bias) (+ addend)`: sums in f32, rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlasGemm {
    /// Left factor.
    pub a: Matrix,
    /// True if `a` is multiplied as its transpose.
    pub a_transposed: bool,
    /// Right factor.
    pub b: Matrix,
    /// True if `b` is multiplied as its transpose.
    pub b_transposed: bool,
    /// Result.
    pub d: Matrix,
    /// One element per row of `d`, in its dtype, added to each column.
    pub bias: Option<u64>,
    /// Matrix that is added before rounding.
    pub addend: Addend,
}
