//! Matrices in int8: rotated, with a scale per row.

use std::collections::BTreeSet;

use precast_kernels::Dtype;

use super::weight::Role;
use crate::config::ModelConfig;
use crate::parameters::{ALIGN, Stack, all_stacks};
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
    /// By layer and GEMM: start and number of its values and of its scales.
    layers: Vec<[[(u64, u64); 2]; 4]>,
}

impl Side {
    /// Declares the values and scales of each layer's GEMMs.
    fn new(
        b: &mut Builder,
        (name, category): (&str, Category),
        config: &ModelConfig,
        elems: impl Fn(&Stack) -> [u64; 2],
    ) -> Self {
        let mut ends = [0; 2];
        let mut place = |kind: usize, elems: u64| {
            let start = ends[kind];
            ends[kind] += elems.next_multiple_of(ALIGN);
            (start, elems)
        };
        let mut places = |stack: &Stack| {
            let [values, scales] = elems(stack);
            [place(0, values), place(1, scales)]
        };
        let layers = all_stacks(config).map(|stacks| stacks.each_ref().map(&mut places)).collect();
        let values = b.persistent(format!("{name}.int8"), category, Dtype::I8, ends[0]);
        let scales = b.persistent(format!("{name}.scales"), category, Dtype::F32, ends[1]);
        Self { values, scales, layers }
    }

    fn stack(&self, layer: u32, index: usize) -> Int8Rows {
        let slice = |of: Tensor, (start, elems)| of.slice(start, elems);
        let [values, scales] = self.layers[layer as usize][index];
        Int8Rows { values: slice(self.values, values), scales: slice(self.scales, scales) }
    }
}

impl Int8Matrices {
    /// Declares the rows, and the columns where gradients of inputs are computed.
    pub fn new(b: &mut Builder, (name, category): (&str, Category), config: &ModelConfig, passes: Passes) -> Self {
        let of_layer = |(layer, stacks): (u32, [Stack; 4])| {
            let parts = stacks.into_iter().flat_map(|stack| stack.parts);
            parts.map(move |part| part.parameter(layer, "weight"))
        };
        let names = (0..).zip(all_stacks(config)).flat_map(of_layer).collect();
        let (of_rows, of_columns) = (format!("{name}.weights"), format!("{name}.weights.columns"));
        let rows = Side::new(b, (&of_rows, category), config, |stack| [stack.elems(), stack.rows().into()]);
        let of_both = |stack: &Stack| [stack.elems(), stack.columns.into()];
        let columns = (passes == Passes::Both).then(|| Side::new(b, (&of_columns, category), config, of_both));
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
