//! Quantizes rows and columns to int8: rotated, with a scale each.

use std::ops::Range;

use precast_kernels::Format;
use precast_kernels::abi::{Int8ColumnsArgs, Int8QuantizeArgs};
use precast_kernels::int8::{Int8Columns, Int8Quantize};

use super::{ActivationRows, Ops};
use crate::weights::{Int8Matrix, Int8Rows, Layer, Weights};
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Returns activations `[tokens, width]` in int8: as written by their producer, or quantized now.
    pub(super) fn in_int8(&mut self, name: &str, x: ActivationRows, width: u32) -> Int8Rows {
        x.int8.unwrap_or_else(|| {
            let int8 = self.int8_rows(name, width);
            self.quantize_rows(&format!("{name}.quantize"), x.dense(), int8);
            int8
        })
    }

    /// Quantizes a matrix: its rows, and its columns if gradients pass.
    pub fn quantize(&mut self, name: &str, w: Tensor, Int8Matrix { rows, columns, .. }: Int8Matrix) {
        self.quantize_rows(&format!("{name}.quantize"), w, rows);
        if let Some(columns) = columns {
            self.quantize_columns(&format!("{name}.columns"), w, columns);
        }
    }

    /// Quantizes the matrices of layers from the full copy of a model's weights.
    pub fn quantize_layers(&mut self, weights: &Weights, copy: Tensor, layers: Range<usize>) {
        for layer in layers {
            let Range { start, end } = weights.parameters.layer(layer);
            self.quantize_layer(weights, layer, copy.slice(start, end - start));
        }
    }

    /// Quantizes the matrices of a layer, adjacent as in flat buffers, from `dense` on.
    pub fn quantize_layer(&mut self, weights: &Weights, layer: usize, dense: Tensor) {
        let start = weights.parameters.layer(layer).start;
        let linears = Layer::LINEARS.into_iter().zip(weights.layers[layer].linears());
        for ((name, linear), range) in linears.zip(&weights.parameters.layers[layer]) {
            let w = dense.slice(range.start - start, range.end - range.start);
            self.quantize(&format!("layers.{layer}.{name}"), w, linear.weight.int8());
        }
    }

    fn quantize_rows(&mut self, name: &str, x: Tensor, Int8Rows { values, scales }: Int8Rows) {
        let Format::Dense(dtype) = x.format else { panic!("{name}: what is quantized is dense") };
        let args = Int8QuantizeArgs { x, q: values, scale: scales, rows: scales.elems as u32 };
        self.launch(name, Int8Quantize { k: (x.elems / scales.elems) as u32, x: dtype }, args);
    }

    fn quantize_columns(&mut self, name: &str, x: Tensor, Int8Rows { values, scales }: Int8Rows) {
        let Format::Dense(dtype) = x.format else { panic!("{name}: what is quantized is dense") };
        let args = Int8ColumnsArgs { x, q: values, scale: scales, columns: scales.elems as u32 };
        self.launch(name, Int8Columns { n: (x.elems / scales.elems) as u32, x: dtype }, args);
    }
}
