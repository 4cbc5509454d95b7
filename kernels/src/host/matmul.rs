//! Matrix multiplication of the host references: the `gemm-f32` crate behind a safe signature.

use gemm_common::Parallelism;
use rayon::prelude::*;

/// A matrix inside a slice: `data[i * row_stride + j * column_stride]`.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Views rows that are `stride` elements apart.
    ///
    /// # Panics
    /// If the slice is too short.
    pub fn rows(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(columns <= stride, "rows overlap");
        assert!(rows == 0 || (rows - 1) * stride + columns <= data.len(), "matrix reaches past its buffer");
        Self { data, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// Returns the transpose: the same elements with strides swapped.
    pub fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// Relation of a GEMM to the elements that its output holds before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Overwrite,
    Accumulate,
}

/// Threads that compute a GEMM; its bits do not depend on them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The caller's: it is one of many that work.
    One,
    /// All of the pool.
    All,
}

/// Computes `out = a b`, or `out += a b`; `out` is [a.rows, b.columns] with rows `out_stride` apart.
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul(out: &mut [f32], out_stride: usize, a: Matrix<'_>, b: Matrix<'_>, output: Output, threads: Threads) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(k, b.rows, "inner dimensions differ");
    if m == 0 || n == 0 {
        return;
    }
    assert!(n <= out_stride && (m - 1) * out_stride + n <= out.len(), "GEMM reaches past its buffer");
    if k == 0 {
        if output == Output::Overwrite {
            out.par_chunks_mut(out_stride).take(m).for_each(|row| row[..n].fill(0.0));
        }
        return;
    }
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // Its microkernels want contiguous output columns: out^T = b^T a^T has them.
    let (lhs, rhs, m, n, strides) =
        if out_stride > 1 { (b.t(), a.t(), n, m, [out_stride as isize, 1]) } else { (a, b, m, n, [1, 1]) };
    let multiply = gemm_f32::gemm::f32::get_gemm_fn();
    // SAFETY: both constructors of `Matrix` and the assertions above keep every index of a, b and out
    // inside its slice, and `out` is borrowed mutably, so it overlaps neither input.
    unsafe {
        multiply(
            m,
            n,
            k,
            out.as_mut_ptr(),
            strides[0],
            strides[1],
            output == Output::Accumulate,
            lhs.data.as_ptr(),
            lhs.column_stride as isize,
            lhs.row_stride as isize,
            rhs.data.as_ptr(),
            rhs.column_stride as isize,
            rhs.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplication_overwrites_and_its_transpose_is_added() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; // 2 x 3
        let b = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]; // 3 x 2
        let (a, b) = (Matrix::rows(&a, 2, 3, 3), Matrix::rows(&b, 3, 2, 2));
        let mut out = [0.0; 4];
        matmul(&mut out, 2, a, b, Output::Overwrite, Threads::One);
        assert_eq!(out, [4.0, 5.0, 10.0, 11.0]);
        matmul(&mut out, 2, b.t(), a.t(), Output::Accumulate, Threads::All);
        assert_eq!(out, [8.0, 15.0, 15.0, 22.0]);
    }

    #[test]
    #[should_panic(expected = "past its buffer")]
    fn short_slices_are_refused() {
        Matrix::rows(&[0.0; 5], 2, 3, 3);
    }
}
