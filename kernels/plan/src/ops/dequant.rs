//! Dequantizes matrices in blocks just before a GEMM reads them.

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
        let elems = u64::from(n) * u64::from(linear.k);
        let Blocks { parts, scratch } = match &linear.weight {
            Matrix::Dense(weight) => return weight.tensor.slice(0, elems),
            Matrix::Blocks(blocks) => blocks,
            Matrix::Int8(_) => panic!("{name}: weights in int8 are rotated, and never dense"),
        };
        let mut start = 0;
        // Rows behind the last are the first again: logits of what is no token are masked, and any numbers do.
        for (index, part) in parts.iter().cycle().enumerate() {
            let count = part.elems.min(elems - start);
            if count == 0 {
                break;
            }
            let name = format!("{name}.dequant.{index}");
            self.dequantize(&name, part.slice(0, count), scratch.slice(start, count));
            start += count;
        }
        scratch.slice(0, elems)
    }

    /// Lowers the dense elements `x` of blocks `w`.
    pub fn dequantize(&mut self, name: &str, w: Tensor, x: Tensor) {
        let Format::Block(block) = w.format else { panic!("{name} is dense") };
        let args = DequantArgs { w, x, n: w.elems };
        self.launch(name, Dequant { w: block, x: self.x }, args);
    }
}
