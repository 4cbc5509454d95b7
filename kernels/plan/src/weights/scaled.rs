//! Matrices of 8 bits: rotated, with a scale for each row.

use std::collections::BTreeSet;

use precast_kernels::Dtype;

use super::Role;
use crate::buffer::{Category, Tensor};
use crate::builder::Builder;
use crate::config::ModelConfig;
use crate::parameters::{ALIGN, stacks};

/// Rows of 8-bit values, rotated; an element is the product of its value and the scale of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantised {
    /// `[rows, width]`, i8.
    pub values: Tensor,
    /// `[rows]`, f32.
    pub scales: Tensor,
}

/// A matrix of 8-bit values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled {
    /// `[n, k]`, rotated along k.
    pub rows: Quantised,
    /// What training does with the matrix that it is made of.
    pub role: Role,
}

/// Those of the products of a model's layers.
pub(super) struct ScaledMatrices {
    /// The parameters that they are made of.
    names: BTreeSet<String>,
    values: Tensor,
    scales: Tensor,
    /// Elements of values and scales of a layer.
    layer: [u64; 2],
    /// Of each product of a layer: where its values and its scales start, and how many they are.
    stacks: [[(u64, u64); 2]; 4],
}

impl ScaledMatrices {
    /// Declares them.
    pub fn new(b: &mut Builder, (name, category): (&str, Category), config: &ModelConfig) -> Self {
        let mut layer = [0; 2];
        let mut place = |kind: usize, elems: u64| {
            let start = layer[kind];
            layer[kind] += elems.next_multiple_of(ALIGN);
            (start, elems)
        };
        let stacks = stacks(config);
        let places = stacks.each_ref().map(|stack| {
            let rows = stack.elems() / u64::from(stack.columns);
            [place(0, stack.elems()), place(1, rows)]
        });
        let modules = stacks.iter().flat_map(|stack| &stack.parts).map(|part| part.module);
        let names = modules.flat_map(|one| (0..config.layers).map(|layer| one.layer_parameter(layer, "weight")));
        let names = names.collect();
        let layers = u64::from(config.layers);
        let values = b.persistent(format!("{name}.weights.int8"), category, Dtype::I8, layers * layer[0]);
        let scales = b.persistent(format!("{name}.weights.scales"), category, Dtype::F32, layers * layer[1]);
        Self { names, values, scales, layer, stacks: places }
    }

    /// Whether a parameter is part of one.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The matrix of the product with this index in a layer.
    pub fn stack(&self, layer: u32, index: usize, role: Role) -> Scaled {
        let [values, scales] = self.stacks[index];
        let slice = |of: Tensor, layer_elems, (start, elems)| of.slice(u64::from(layer) * layer_elems + start, elems);
        let values = slice(self.values, self.layer[0], values);
        Scaled { rows: Quantised { values, scales: slice(self.scales, self.layer[1], scales) }, role }
    }
}
