//! Dequantizes matrices in blocks just before a GEMM reads them.

use std::ops::Range;

use precast_kernels::{Format, abi::DequantArgs, dequant::Dequant};

use super::Ops;
use crate::weights::{Blocks, Linear, Matrix, Role, Weight};
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Returns the dense matrix of a linear layer, dequantized if needed.
    pub fn matrix(&mut self, name: &str, linear: &Linear) -> Tensor {
        self.matrix_rows(name, linear, linear.n)
    }

    /// Returns a layer of the first `n` rows of another, its matrix dense.
    pub fn dense(&mut self, name: &str, linear: &Linear, n: u32) -> Linear {
        let tensor = self.matrix_rows(name, linear, n);
        Linear { weight: Matrix::Dense(Weight { tensor, role: Role::Frozen }), n, ..linear.clone() }
    }

    /// Returns the first `n` rows of a matrix, dense.
    fn matrix_rows(&mut self, name: &str, linear: &Linear, n: u32) -> Tensor {
        self.dense_rows(name, linear, (0..n, 0))
    }

    /// Returns a range of the rows of a matrix, dense; if they are dequantized, in this scratch of its two.
    pub(super) fn dense_rows(&mut self, name: &str, linear: &Linear, (rows, slot): (Range<u32>, usize)) -> Tensor {
        let [start, end] = [rows.start, rows.end].map(|row| u64::from(row) * u64::from(linear.k));
        let Blocks { parts, scratch } = match &linear.weight {
            Matrix::Dense(weight) => return weight.tensor.slice(start, end - start),
            Matrix::Blocks(blocks) => blocks,
            Matrix::Int8(_) => panic!("{name}: weights in int8 are rotated, and never dense"),
        };
        let scratch = scratch[slot].slice(0, end - start);
        // Rows behind the last are the first again: logits of what is no token are masked, and any numbers do.
        let mut first = 0;
        let mut index = 0;
        for part in parts.iter().cycle() {
            let last = first + part.elems;
            let (from, to) = (start.max(first), end.min(last));
            if from < to {
                let name = format!("{name}.dequant.{index}");
                self.dequantize(&name, part.slice(from - first, to - from), scratch.slice(from - start, to - from));
                index += 1;
            }
            if last >= end {
                break;
            }
            first = last;
        }
        scratch
    }

    /// Lowers the dense elements `x` of blocks `w`.
    pub fn dequantize(&mut self, name: &str, w: Tensor, x: Tensor) {
        let Format::Block(block) = w.format else { panic!("{name} is dense") };
        let args = DequantArgs { w, x, n: w.elems };
        self.launch(name, Dequant { w: block, x: self.x }, args);
    }
}
