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

    /// Returns up to `count` rows from one on.
    fn from(self, first: usize, count: usize) -> Self {
        Self { data: &self.data[first * self.row_stride..], rows: count.min(self.rows - first), ..self }
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

/// Deepest sum of the crate's: it divides deeper ones by the other sizes, on which the bits of an element would depend.
const DEPTH: usize = 512;

/// Outputs of a small GEMM, which the crate adds up along the depth in another order.
const FEW: usize = 16 * 16;

/// Computes `out = a b`, or `out += a b`; `out` is [a.rows, b.columns] with rows `out_stride` apart. The bits of a row
/// do not depend on how many there are.
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
    if m * n <= FEW || m == 1 {
        return among_others(out, out_stride, a, b, output, threads);
    }
    for first in (0..k).step_by(DEPTH) {
        let (a, b) = (a.t().from(first, DEPTH).t(), b.from(first, DEPTH));
        multiply(out, out_stride, a, b, if first == 0 { output } else { Output::Accumulate }, threads);
    }
}

/// Computes a small GEMM with as many more rows of zeros as another one has.
fn among_others(out: &mut [f32], out_stride: usize, a: Matrix<'_>, b: Matrix<'_>, output: Output, threads: Threads) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    let rows = m.max(FEW / n + 1).max(2);
    let element = |i: usize| if i / k < m { a.data[i / k * a.row_stride + i % k * a.column_stride] } else { 0.0 };
    let all: Vec<f32> = (0..rows * k).map(element).collect();
    let mut sums = vec![0.0; rows * n];
    if output == Output::Accumulate {
        sums.chunks_mut(n).zip(out.chunks(out_stride)).take(m).for_each(|(sums, row)| sums.copy_from_slice(&row[..n]));
    }
    matmul(&mut sums, n, Matrix::rows(&all, rows, k, k), b, output, threads);
    out.chunks_mut(out_stride).zip(sums.chunks(n)).take(m).for_each(|(row, sums)| row[..n].copy_from_slice(sums));
}

/// Computes a GEMM whose shapes fit.
fn multiply(out: &mut [f32], out_stride: usize, a: Matrix<'_>, b: Matrix<'_>, output: Output, threads: Threads) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // Its microkernels want contiguous output columns: out^T = b^T a^T has them.
    let (lhs, rhs, m, n, strides) =
        if out_stride > 1 { (b.t(), a.t(), n, m, [out_stride as isize, 1]) } else { (a, b, m, n, [1, 1]) };
    let multiply = gemm_f32::gemm::f32::get_gemm_fn();
    // SAFETY: the constructors of `Matrix` and the assertions of `matmul` keep every index of a, b and out
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
    fn a_row_has_the_same_bits_among_few_and_among_many() {
        for (n, k) in [(1, 64), (3, 17), (24, 520), (64, 64), (97, 128), (128, 97), (300, 1300)] {
            let numbers = |count: usize| (0..count).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>();
            let (a, b) = (numbers(138 * k), numbers(n * k));
            let multiplied = |rows: usize| {
                let mut out = vec![0.0; rows * n];
                let (a, b) = (Matrix::rows(&a, rows, k, k), Matrix::rows(&b, n, k, k).t());
                matmul(&mut out, n, a, b, Output::Overwrite, Threads::One);
                out
            };
            let all = multiplied(138);
            for rows in [1, 2, 3, 64, 65, 137] {
                assert!(multiplied(rows) == all[..rows * n], "{rows} of 138 rows, n={n}, k={k}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "past its buffer")]
    fn short_slices_are_refused() {
        Matrix::rows(&[0.0; 5], 2, 3, 3);
    }
}
