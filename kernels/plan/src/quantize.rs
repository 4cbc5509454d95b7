//! Lowers start-up phases that quantize a model at load, and can also compute a batch by the dense matrices.

use crate::config::ModelConfig;
use crate::model::Model;
use crate::ops::Ops;
use crate::parameters::{Parameter, stacks};
use crate::staged::{CERTIFY, QUANTIZE, Staged, WIDEN, name_of};
use crate::weights::{Layer, Linear, Matrix, Role, Weight};
use precast_core::plan::Tensor;

impl Model<'_> {
    /// Widens the matrices of a model that trains and quantizes them, a phase per layer: the dense form is not kept.
    pub fn widen(&self, ops: &mut Ops<'_>) -> Vec<Staged> {
        let layers = self.blocks().enumerate().map(|(index, (scope, block))| {
            let quantize = format!("{WIDEN}.{index}");
            ops.phase(&quantize);
            ops.scope(scope);
            let (parts, dense) = stage(ops, self.config, index as u32, block.weights);
            let linears = block.weights.linears().into_iter().zip(dense.linears());
            for (name, (linear, dense)) in Layer::LINEARS.into_iter().zip(linears) {
                let (dense, trained) = (dense.weight.dense(), linear.weight.trained().expect("a matrix that trains"));
                ops.cast(&format!("{name}.master"), dense, trained.master);
                ops.quantize(name, dense, linear.weight.int8());
            }
            Staged { quantize, certify: None, parts }
        });
        layers.collect()
    }

    /// Quantizes the matrices of int8 GEMMs, a start-up phase per layer. With `ids`, another phase per layer
    /// computes the last hidden states of these tokens, normalized, by the dense matrices.
    pub fn quantize(&self, ops: &mut Ops<'_>, ids: Option<Tensor>) -> (Vec<Staged>, Option<Tensor>) {
        let mut staged = Vec::new();
        let mut stream = None;
        for (index, (scope, block)) in self.blocks().enumerate() {
            let quantize = format!("{}.{index}", name_of(QUANTIZE, self.name));
            ops.startup_phase(&quantize);
            ops.scope(scope);
            let (parts, dense) = stage(ops, self.config, index as u32, block.weights);
            for ((name, linear), dense) in Layer::LINEARS.into_iter().zip(block.weights.linears()).zip(dense.linears())
            {
                ops.quantize(name, dense.weight.dense(), linear.weight.int8());
            }
            let certify = ids.map(|_| format!("{}.{index}", name_of(CERTIFY, self.name)));
            staged.push(Staged { quantize, certify: certify.clone(), parts });
            let Some((ids, phase)) = ids.zip(certify) else { continue };
            ops.startup_phase(&phase);
            let input = stream.unwrap_or_else(|| self.embedding(ops, ids).into());
            ops.scope(format!("{}.dense.layers.{index}", self.name));
            stream = Some(block.with(&dense).forward(ops, input));
        }
        (
            staged,
            stream.map(|stream| {
                let norm = self.norm(ops, stream);
                self.hidden(ops, norm)
            }),
        )
    }
}

/// Declares a layer with dense matrices, adjacent in a buffer that is sent, and each parameter's place in it.
fn stage(ops: &mut Ops<'_>, config: &ModelConfig, layer: u32, weights: &Layer) -> (Vec<(Parameter, Tensor)>, Layer) {
    let stacks = stacks(config, config.layers[layer as usize].kind);
    let all = ops.sent("staged", stacks.iter().map(|stack| stack.elems()).sum());
    let (mut start, mut parts) = (0, Vec::new());
    let mut dense = stacks.iter().zip(weights.linears()).map(|(stack, linear)| {
        let tensor = all.slice(start, stack.elems());
        for part in &stack.parts {
            let shape = vec![part.rows.into(), stack.columns.into()];
            let parameter = Parameter { name: part.parameter(layer, "weight"), shape };
            let place = all.slice(start, parameter.elems());
            start += parameter.elems();
            parts.push((parameter, place));
        }
        Linear { weight: Matrix::Dense(Weight { tensor, role: Role::Frozen }), ..linear.clone() }
    });
    let mut next = || dense.next().expect("four GEMMs");
    let dense = Layer { qkv: next(), o: next(), gate_up: next(), down: next(), ..weights.clone() };
    (parts, dense)
}
