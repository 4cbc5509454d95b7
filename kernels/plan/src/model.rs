//! Lowers a model without its head, forward and backward.

use precast_core::host::round_to;
use precast_kernels::{Dtype, Out};

use crate::block::{Below, Saved, Stream, TransformerBlock};
use crate::cache::LayerCache;
use crate::category;
use crate::config::ModelConfig;
use crate::head::Head;
use crate::mixer::Mixer;
use crate::ops::{Normed, Ops, Routes, Sorted};
use crate::recipe::Recompute;
use crate::rope::Rope;
use crate::staged::Staged;
use crate::weights::Weights;
use precast_core::plan::{Builder, Tensor};

/// A model's weights and tables on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    pub weights: Weights,
    /// Tables of its rotary embeddings.
    pub ropes: Vec<Rope>,
    /// Its matrices quantized at load.
    pub staged: Vec<Staged>,
    /// Rows and tiles of its experts, if there are some.
    pub routes: Option<Routes>,
    /// Keys and values by layer, of a model that decodes.
    pub caches: Vec<LayerCache>,
}

impl Resident {
    /// Declares tables of so many positions, and what experts need for so many tokens at a time.
    pub(crate) fn new(
        b: &mut Builder,
        name: &str,
        config: &ModelConfig,
        weights: Weights,
        (tokens, seq_len): (u32, u32),
    ) -> Self {
        let elems = u64::from(seq_len) * u64::from(config.rotary / 2);
        let mut table = |name: String| b.persistent(name, category::INPUTS, Dtype::F32, elems);
        let mut tables = |index: usize| {
            let name = if index == 0 { format!("{name}.rope") } else { format!("{name}.rope.{index}") };
            Rope { cos: table(format!("{name}.cos")), sin: table(format!("{name}.sin")) }
        };
        let ropes = (0..config.ropes.len()).map(&mut tables).collect();
        let experts = weights.layers.iter().find_map(|layer| layer.experts.as_ref());
        let routes = experts.map(|experts| Routes::declare(b, name, experts, tokens));
        Self { weights, ropes, staged: Vec::new(), routes, caches: Vec::new() }
    }
}

/// Returns the factor of rows of the embedding; a root is rounded to the dtype of weights, as transformers does.
pub(crate) fn embedding_scale(config: &ModelConfig, dtype: Dtype) -> f32 {
    let factor = config.multipliers.embedding;
    if config.family.root_scales { round_to(dtype, factor) } else { factor }
}

/// A model in a plan.
pub(crate) struct Model<'a> {
    /// First part of every name: `teacher`, `student` or `model`.
    pub name: &'a str,
    pub config: &'a ModelConfig,
    pub resident: &'a Resident,
}

/// Activations that the forward pass saves for the backward pass.
pub(crate) struct Activations {
    /// By block, from the lowest that trains upward.
    blocks: Vec<Saved>,
    /// Residual stream after the last block.
    last: Tensor,
    norm: Normed,
}

impl<'a> Model<'a> {
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = (String, TransformerBlock<'a>)> + ExactSizeIterator {
        let Self { name, config, resident } = *self;
        let Weights { layers, norm, .. } = &resident.weights;
        layers.iter().zip(&config.layers).enumerate().map(move |(layer, (weights, of_layer))| {
            let next = match layers.get(layer + 1) {
                Some(above) => above.input_norm.as_ref().map(|norm| (norm, above.out())),
                None => Some((norm, Out::Dense)),
            };
            let block = TransformerBlock {
                weights,
                mixer: Mixer::of(config, of_layer, weights, (&resident.ropes, resident.caches.get(layer).copied())),
                routes: resident.routes,
                residual_scale: config.multipliers.residual,
                gate: config.family.gate,
                next: weights.down_norm.as_ref().and(next),
            };
            (format!("{name}.layers.{layer}"), block)
        })
    }

    /// Lowers the forward pass; returns the last hidden states, normalized. No buffer outlives the launches that read
    /// it.
    pub fn forward(&self, ops: &mut Ops<'_>, ids: Tensor) -> Head<'a> {
        let stream = self.stream(ops, ids, None);
        self.head_of(ops, stream)
    }

    /// Lowers the forward pass up to the residual stream after the last block, which is written to `output`, if that is
    /// given.
    pub fn stream(&self, ops: &mut Ops<'_>, ids: Tensor, output: Option<Tensor>) -> Stream {
        let mut stream = Stream::from(self.embedding(ops, ids));
        let last = self.config.depth() as usize - 1;
        for (layer, (scope, block)) in self.blocks().enumerate() {
            ops.scope(scope);
            stream = match output.filter(|_| layer == last) {
                // The norm is computed of what is written.
                Some(_) => TransformerBlock { next: None, ..block }.forward_to(ops, stream, output),
                None => block.forward(ops, stream),
            };
        }
        stream
    }

    /// Lowers the norm of the residual stream after the last block; returns the head that reads it.
    pub fn head_of(&self, ops: &mut Ops<'_>, stream: Stream) -> Head<'a> {
        let norm = self.norm(ops, stream);
        self.head(ops, norm)
    }

    /// Lowers what keys and values of all layers follow from: the forward pass up to the last layer's.
    pub fn fill_cache(&self, ops: &mut Ops<'_>, ids: Tensor) {
        let mut stream = Stream::from(self.embedding(ops, ids));
        let last = self.config.depth() as usize - 1;
        for (layer, (scope, block)) in self.blocks().enumerate() {
            ops.scope(scope);
            if layer == last {
                return block.fill_cache(ops, stream);
            }
            stream = block.forward(ops, stream);
        }
    }

    /// Like [`Self::forward`], for a model that trains; also returns the activations for the backward pass.
    pub fn forward_saving(&self, ops: &mut Ops<'_>, ids: Tensor, recompute: Recompute) -> (Head<'a>, Activations) {
        let mut stream = Stream::from(self.embedding(ops, ids));
        let mut saved = Vec::new();
        for (scope, block) in self.blocks() {
            ops.scope(scope);
            stream = if saved.is_empty() && !block.weights.trains() {
                block.forward(ops, stream)
            } else {
                let (output, of_block) = block.forward_saving(ops, stream, recompute);
                saved.push(of_block);
                output
            };
        }
        let norm = self.norm(ops, stream);
        (self.head(ops, norm), Activations { blocks: saved, last: stream.x, norm })
    }

    /// Lowers the backward pass below the head: from the gradient of the last hidden states to the lowest weight that
    /// trains.
    pub fn backward(&self, ops: &mut Ops<'_>, saved: Activations, dhidden: Tensor, sorted: Sorted) {
        let weights = &self.resident.weights;
        ops.scope(self.name);
        let Activations { blocks, last, norm } = saved;
        let top = self.blocks().next_back().filter(|(_, block)| block.adds_plainly());
        let out = top.map_or(Out::Dense, |(_, block)| block.weights.out());
        let dhidden = ops.scaled("norm.dscaled", dhidden, self.config.multipliers.logits);
        let mut dstream = ops.norm_backward("norm", dhidden, (last, norm.rstd), &weights.norm, None, out);
        let embedding = weights.embedding.trained().map(|_| Below::Embedding);
        let lowest = weights.layers.len() - blocks.len();
        for (index, ((scope, block), saved)) in self.blocks().skip(lowest).zip(blocks).enumerate().rev() {
            ops.scope(scope);
            match block.backward(ops, saved, dstream, if index > 0 { Some(Below::Block) } else { embedding }) {
                Some(dinput) => dstream = dinput,
                None => return,
            }
        }
        ops.scope(self.name);
        let dy = ops.scaled("embedding.dscaled", dstream.dense(), embedding_scale(self.config, ops.x));
        ops.embedding_backward("embedding", dy, sorted, weights, self.config.padding);
    }

    pub fn embedding(&self, ops: &mut Ops<'_>, ids: Tensor) -> Tensor {
        ops.scope(self.name);
        let rows = ops.embedding("embedding", ids, &self.resident.weights.embedding, self.config.hidden);
        ops.scaled("embedding.scaled", rows, embedding_scale(self.config, ops.x))
    }

    pub fn norm(&self, ops: &mut Ops<'_>, stream: Stream) -> Normed {
        ops.scope(self.name);
        stream.normed.unwrap_or_else(|| ops.norm("norm", stream.x, &self.resident.weights.norm, Out::Dense))
    }

    /// Lowers what the head reads: the last norm, scaled as logits are.
    pub fn hidden(&self, ops: &mut Ops<'_>, norm: Normed) -> Tensor {
        ops.scaled("norm.scaled", norm.rows.dense(), self.config.multipliers.logits)
    }

    fn head(&self, ops: &mut Ops<'_>, norm: Normed) -> Head<'a> {
        let hidden = self.hidden(ops, norm);
        Head { linear: &self.resident.weights.head, vocab: self.config.vocab, hidden }
    }
}
