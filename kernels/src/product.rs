//! Matrix products as BLAS libraries have them: so that a library may compute what a kernel does.

use crate::dtype::Dtype;

/// A matrix as it lies in memory: column after column, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub address: u64,
    pub rows: u32,
    pub columns: u32,
    pub dtype: Dtype,
}

/// What is added to a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addend {
    Nothing,
    /// A matrix of the result's shape and dtype.
    Matrix(u64),
    /// What the result's memory holds, in all micro-batches of a step but the first.
    Accumulated,
}

/// `d = a b (+ bias) (+ addend)`: sums in f32, rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    pub a: Matrix,
    /// Whether `a` is multiplied as its transpose.
    pub a_transposed: bool,
    pub b: Matrix,
    pub b_transposed: bool,
    pub d: Matrix,
    /// An element a row of `d`, of its dtype, added to each column.
    pub bias: Option<u64>,
    pub addend: Addend,
}
