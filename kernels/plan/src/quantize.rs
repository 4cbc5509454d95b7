//! Quantizing a model while it is loaded: start-up phases, which can compute a batch by the dense matrices, too.

use crate::block::Block;
use crate::buffer::Tensor;
use crate::config::ModelConfig;
use crate::model::Model;
use crate::ops::Ops;
use crate::parameters::{Parameter, stacks};
use crate::staged::{CERTIFY, QUANTIZE, Staged, WIDEN};
use crate::weights::{Layer, Linear, Matrix, Role, Weight};

impl Model<'_> {
    /// Widens the matrices of a model that trains, a phase a layer, and quantizes them: they lie nowhere as they are sent.
    pub fn widen(&self, ops: &mut Ops<'_>) -> Vec<Staged> {
        let layers = self.blocks().enumerate().map(|(index, (scope, block))| {
            let quantize = format!("{WIDEN}.{index}");
            ops.phase(&quantize);
            ops.scope(scope);
            let (parts, dense) = stage(ops, self.config, index as u32, block.weights);
            let products = block.weights.products().into_iter().zip(dense.products());
            for (name, (linear, dense)) in Layer::PRODUCTS.into_iter().zip(products) {
                let (dense, trained) = (dense.weight.dense(), linear.weight.trained().expect("a matrix that trains"));
                ops.cast(&format!("{name}.master"), dense, trained.master);
                ops.quantize(name, dense, linear.weight.int8());
            }
            Staged { quantize, certify: None, parts }
        });
        layers.collect()
    }

    /// Quantizes the matrices of products in int8, a start-up phase a layer. With `ids`, another phase a layer computes the last
    /// hidden states of these tokens, normalized, by the matrices as they are sent.
    pub fn quantize(&self, ops: &mut Ops<'_>, ids: Option<Tensor>) -> (Vec<Staged>, Option<Tensor>) {
        // A frozen student has phases beside its teacher's.
        let of = if self.name == "student" { ".student" } else { "" };
        let mut staged = Vec::new();
        let mut stream = None;
        for (index, (scope, block)) in self.blocks().enumerate() {
            let quantize = format!("{QUANTIZE}{of}.{index}");
            ops.startup_phase(&quantize);
            ops.scope(scope);
            let (parts, dense) = stage(ops, self.config, index as u32, block.weights);
            for ((name, linear), dense) in
                Layer::PRODUCTS.into_iter().zip(block.weights.products()).zip(dense.products())
            {
                ops.quantize(name, dense.weight.dense(), linear.weight.int8());
            }
            let certify = ids.map(|_| format!("{CERTIFY}{of}.{index}"));
            staged.push(Staged { quantize, certify: certify.clone(), parts });
            let Some((ids, phase)) = ids.zip(certify) else { continue };
            ops.startup_phase(&phase);
            let input = stream.unwrap_or_else(|| self.embedding(ops, ids));
            ops.scope(format!("{}.dense.layers.{index}", self.name));
            stream = Some(Block { weights: &dense, ..block }.forward(ops, input));
        }
        (staged, stream.map(|stream| self.norm(ops, stream).rows.dense()))
    }
}

/// A layer whose matrices are dense, one behind the other in a buffer that is sent, and where in it each parameter goes.
fn stage(ops: &mut Ops<'_>, config: &ModelConfig, layer: u32, weights: &Layer) -> (Vec<(Parameter, Tensor)>, Layer) {
    let stacks = stacks(config);
    let all = ops.sent("staged", stacks.iter().map(|stack| stack.elems()).sum());
    let (mut start, mut parts) = (0, Vec::new());
    let mut dense = stacks.iter().zip(weights.products()).map(|(stack, linear)| {
        let tensor = all.slice(start, stack.elems());
        for part in &stack.parts {
            let shape = vec![part.rows.into(), stack.columns.into()];
            let parameter = Parameter { name: part.module.layer_parameter(layer, "weight"), shape };
            let place = all.slice(start, parameter.elems());
            start += parameter.elems();
            parts.push((parameter, place));
        }
        Linear { weight: Matrix::Dense(Weight { tensor, role: Role::Frozen }), ..linear.clone() }
    });
    let mut next = || dense.next().expect("four products");
    let dense = Layer { qkv: next(), o: next(), gate_up: next(), down: next(), ..weights.clone() };
    (parts, dense)
}
