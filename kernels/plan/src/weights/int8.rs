//! Matrices in int8: rotated, with a scale per row.

use std::collections::BTreeSet;

use precast_kernels::Dtype;

use super::weight::Role;
use crate::config::{LayerKind, ModelConfig};
use crate::parameters::{ALIGN, stacks};
use precast_core::plan::{Builder, Category, Tensor};

/// Passes that read frozen weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passes {
    Forward,
    /// The backward pass too, which reads int8 matrices by columns.
    Both,
}

/// Rows of 8-bit values, rotated; an element is its value times the scale of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Int8Rows {
    /// `[rows, width]`, i8.
    pub values: Tensor,
    /// `[rows]`, f32.
    pub scales: Tensor,
}

impl Int8Rows {
    /// Returns the values and the scales from the first of these rows to the last of later ones, padding included.
    fn through(self, last: Self) -> [Tensor; 2] {
        [(self.values, last.values), (self.scales, last.scales)].map(|(first, last)| {
            let elems = (last.offset - first.offset) / first.format.bytes(1) + last.elems;
            Tensor { elems, ..first }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Int8Matrix {
    /// `[n, k]`, rotated along k: read by GEMMs for outputs.
    pub rows: Int8Rows,
    /// `[k, n]`, rotated along n: read by GEMMs for gradients of inputs, if any pass.
    pub columns: Option<Int8Rows>,
    /// Role of the dense matrix.
    pub role: Role,
}

impl Int8Matrix {
    /// Returns the ranges from this matrix to a later one of the model: of rows, and of columns if gradients pass.
    pub(super) fn through(self, last: Self) -> Vec<Tensor> {
        let columns = self.columns.zip(last.columns).map(|(first, last)| first.through(last));
        self.rows.through(last.rows).into_iter().chain(columns.into_iter().flatten()).collect()
    }
}

/// Int8 matrices of a model's layers.
pub(super) struct Int8Matrices {
    /// Parameters that they are quantized from.
    names: BTreeSet<String>,
    rows: Side,
    columns: Option<Side>,
}

/// Rows of all matrices, or their columns.
struct Side {
    values: Tensor,
    scales: Tensor,
    /// Elements of values and scales of a layer.
    layer: [u64; 2],
    /// By GEMM of a layer: start and number of its values and of its scales.
    stacks: [[(u64, u64); 2]; 4],
}

impl Side {
    /// Declares the values and scales of each layer.
    fn new(b: &mut Builder, (name, category): (&str, Category), layers: u32, stacks: [[u64; 2]; 4]) -> Self {
        let mut layer = [0; 2];
        let mut place = |kind: usize, elems: u64| {
            let start = layer[kind];
            layer[kind] += elems.next_multiple_of(ALIGN);
            (start, elems)
        };
        let stacks = stacks.map(|[values, scales]| [place(0, values), place(1, scales)]);
        let layers = u64::from(layers);
        let values = b.persistent(format!("{name}.int8"), category, Dtype::I8, layers * layer[0]);
        let scales = b.persistent(format!("{name}.scales"), category, Dtype::F32, layers * layer[1]);
        Self { values, scales, layer, stacks }
    }

    fn stack(&self, layer: u32, index: usize) -> Int8Rows {
        let slice = |of: Tensor, layer_elems, (start, elems)| of.slice(u64::from(layer) * layer_elems + start, elems);
        let [values, scales] = self.stacks[index];
        Int8Rows {
            values: slice(self.values, self.layer[0], values),
            scales: slice(self.scales, self.layer[1], scales),
        }
    }
}

impl Int8Matrices {
    /// Declares the rows, and the columns where gradients of inputs are computed.
    pub fn new(b: &mut Builder, (name, category): (&str, Category), config: &ModelConfig, passes: Passes) -> Self {
        // Layers of the gated delta rule are refused before: all have the same GEMMs.
        let stacks = stacks(config, LayerKind::Attention);
        let modules = stacks.iter().flat_map(|stack| &stack.parts).map(|part| part.module);
        let names = modules.flat_map(|one| (0..config.depth()).map(|layer| one.layer_parameter(layer, "weight")));
        let names = names.collect();
        let (of_rows, of_columns) = (format!("{name}.weights"), format!("{name}.weights.columns"));
        let rows = stacks.each_ref().map(|stack| [stack.elems(), stack.rows().into()]);
        let columns = stacks.each_ref().map(|stack| [stack.elems(), stack.columns.into()]);
        let rows = Side::new(b, (&of_rows, category), config.depth(), rows);
        let columns = (passes == Passes::Both).then(|| Side::new(b, (&of_columns, category), config.depth(), columns));
        Self { names, rows, columns }
    }

    /// True if a parameter is part of one.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the matrix of the GEMM with this index in a layer.
    pub fn stack(&self, layer: u32, index: usize, role: Role) -> Int8Matrix {
        let columns = self.columns.as_ref().map(|columns| columns.stack(layer, index));
        Int8Matrix { rows: self.rows.stack(layer, index), columns, role }
    }
}
