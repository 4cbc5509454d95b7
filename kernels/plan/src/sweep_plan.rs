//! The plan that computes the last hidden states of a model that does not fit: layer after layer, of many sequences at
//! a time.

use std::collections::BTreeMap;

use precast_core::plan::{Builder, Category, Tensor};
use precast_kernels::{Arch, Block, Dtype, Format, KERNELS, Out};

use crate::block::TransformerBlock;
use crate::cached::HeadWeights;
use crate::category;
use crate::config::{LayerConfig, ModelConfig};
use crate::evaluation::check;
use crate::formats::Formats;
use crate::hidden_plan::{results, without_head};
use crate::lowered::Lowered;
use crate::mixer::Mixer;
use crate::model::{Resident, embedding_scale};
use crate::ops::Ops;
use crate::parameters::{ALIGN, Parameter};
use crate::predictions::TopTokens;
use crate::recipe::{PlanError, Precision};
use crate::sequences::{Sequences, Shape};
use crate::weights::{Passes, Role, Weight, Weights};

/// A plan for the last hidden states of batches of sequences, which pass through a layer before the next layer's
/// weights are there.
///
/// Weights of two layers of each kind of mixer are on the device: one layer computes while the next arrives. Keys,
/// variants and blocks are those of [`HiddenPlan`](crate::HiddenPlan), so the bits are too.
///
/// Residual streams of a pass are all in one place, or in blocks of which two are on the device, each in a place: one
/// computes while the other is copied to host memory, and the next from there.
///
/// Its phases are [`SweepPlan::EMBED`], [`SweepPlan::layer_phase`] and [`SweepPlan::norm_phase`].
pub type SweepPlan = Lowered<SweepBuffers>;

/// Buffers of a [`SweepPlan`].
#[derive(Clone, Debug, PartialEq)]
pub struct SweepBuffers {
    /// Token ids of each batch of a block, a place each, sent first.
    pub ids: Vec<Tensor>,
    /// Sequences that lie in these places, of each batch of the block in each place, sent before the block's first
    /// layer.
    pub sequences: Vec<Vec<Sequences>>,
    /// Residual streams of a block in each place, one place or two. Blocks are embedded and normalized in the first.
    pub places: Vec<Tensor>,
    /// Embedding table, `[vocab, hidden]`, sent before [`SweepPlan::EMBED`].
    pub embedding: (Parameter, Tensor),
    /// A model of one layer for each kind of mixer: the first place of a layer, and the norm before the head.
    pub first: Resident,
    /// The second place of a layer.
    second: Weights,
    /// The layer of a place that a layer is sent to.
    own: Vec<u32>,
    /// Formats of the matrices as they are sent.
    formats: Formats,
    /// Place in which a matrix in blocks arrives, by its name in a place and its format.
    staged: BTreeMap<(String, Block), Tensor>,
    /// Kind of each layer, a number.
    kinds: Vec<usize>,
    /// The head, if most likely tokens are asked for, sent before the first [`SweepPlan::norm_phase`].
    pub head: Option<HeadWeights>,
    /// Results of each batch of a block after its [`SweepPlan::norm_phase`], as of [`HiddenPlan`](crate::HiddenPlan).
    pub results: Vec<Vec<Tensor>>,
}

/// Returns the phase that dequantizes a matrix of blocks into one of the places of a layer.
fn dequant_phase(slot: u32, name: &str, block: Block) -> String {
    format!("dequant.{slot}.{name}.{block}")
}

/// Declares a place for each matrix of a layer in each format of blocks that any layer has it in.
fn staged(b: &mut Builder, weights: &Weights, (own, formats): (&[u32], &Formats)) -> BTreeMap<(String, Block), Tensor> {
    let mut staged = BTreeMap::new();
    for (parameter, _) in weights.list() {
        let of_layer = |(layer, own): (u32, &u32)| formats.of(&parameter.of_layer(*own, layer)?.name);
        for block in (0..).zip(own).filter_map(of_layer) {
            staged.entry((parameter.name.clone(), block)).or_insert_with(|| {
                let name = format!("staged.{}.{block}", parameter.name);
                b.persistent(name, category::TEACHER_WEIGHTS, block, parameter.elems())
            });
        }
    }
    staged
}

/// Declares a buffer of so many tensors of so many elements, each aligned; returns all of it, and them.
fn each(
    b: &mut Builder,
    (name, category): (&str, Category),
    dtype: Dtype,
    (count, elems): (u32, u64),
) -> (Tensor, Vec<Tensor>) {
    let stride = elems.next_multiple_of(ALIGN);
    let all = b.persistent(name, category, dtype, u64::from(count) * stride);
    (all, (0..u64::from(count)).map(|index| all.slice(index * stride, elems)).collect())
}

/// Returns the phase that takes the block in a place through a layer of a kind.
fn layer_phase(slot: u32, kind: usize, place: usize) -> String {
    format!("layer.{slot}.{kind}.{place}")
}

/// Lowers the rows of the embedding table of each batch, to streams; returns the table as it is sent.
fn embed(
    ops: &mut Ops<'_>,
    (config, formats): (&ModelConfig, &Formats),
    ids: &[Tensor],
    streams: &[Tensor],
) -> (Parameter, Tensor) {
    ops.scope("model");
    let (parameter, dtype) = (Parameter::head(&without_head(config)), ops.x);
    let format = formats.of(&parameter.name).map_or(Format::Dense(dtype), Format::Block);
    let tensor = ops.sent_in("table", format, parameter.elems());
    let table = Weight { tensor, role: Role::Frozen };
    for (index, (ids, stream)) in ids.iter().zip(streams).enumerate() {
        let name = format!("{index}.embedding");
        match embedding_scale(config, dtype) {
            1.0 => ops.embed(&name, *ids, &table, *stream),
            factor => {
                let rows = ops.embedding(&name, *ids, &table, config.hidden);
                ops.scale(&format!("{name}.scaled"), rows, factor, None, Some(*stream));
            }
        }
    }
    (parameter, tensor)
}

/// Returns a model with a layer of each kind of mixer, whose weights are of one shape, and for each layer the one that
/// has its.
fn of_each_mixer(config: &ModelConfig) -> (ModelConfig, Vec<u32>) {
    let mut layers: Vec<LayerConfig> = Vec::new();
    let mut own = |layer: &LayerConfig| {
        let known = layers.iter().position(|other| other.kind == layer.kind);
        known.unwrap_or_else(|| {
            layers.push(*layer);
            layers.len() - 1
        }) as u32
    };
    let own = config.layers.iter().map(&mut own).collect();
    (ModelConfig { layers, ..config.clone() }, own)
}

/// Lowers the phases of both places of a layer: one for each matrix that arrives in blocks, and one for each kind of
/// layer and place of streams.
fn lower_layers(
    ops: &mut Ops<'_>,
    (config, own): (&ModelConfig, &[u32]),
    (first, second): (&Resident, &Weights),
    staged: &BTreeMap<(String, Block), Tensor>,
    (streams, sequences): (&[Vec<Tensor>], &[Vec<Sequences>]),
) {
    for (slot, weights) in [&first.weights, second].into_iter().enumerate() {
        for ((name, block), w) in staged {
            ops.phase(&dequant_phase(slot as u32, name, *block));
            ops.scope("model");
            let (_, dense) = weights.list().find(|(parameter, _)| parameter.name == *name).expect("its own");
            ops.dequantize(&format!("{name}.dequant"), *w, dense.tensor);
        }
        for (kind, layer) in config.kinds().iter().enumerate() {
            let own = config.layers.iter().zip(own).find(|(other, _)| *other == layer).expect("a layer of its kind").1;
            let weights = &weights.layers[*own as usize];
            let block = TransformerBlock {
                weights,
                mixer: Mixer::of(config, layer, weights, (&first.ropes, None)),
                routes: first.routes,
                residual_scale: config.multipliers.residual,
                gate: config.family.gate,
                next: None,
            };
            for (place, (streams, sequences)) in streams.iter().zip(sequences).enumerate() {
                ops.phase(&layer_phase(slot as u32, kind, place));
                ops.beside();
                for (index, (stream, sequences)) in streams.iter().zip(sequences).enumerate() {
                    ops.scope(format!("model.layer.{index}"));
                    ops.set_sequences(*sequences);
                    block.forward_to(ops, (*stream).into(), Some(*stream));
                }
            }
        }
    }
}

impl Lowered<SweepBuffers> {
    /// Name of the phase that gathers rows of the embedding table for all batches of a block.
    pub const EMBED: &str = "embed";

    /// Returns the phase that takes the block in a place through a layer. It runs on the side stream, beside copies of
    /// the next layer and of the other place.
    pub fn layer_phase(&self, layer: u32, place: usize) -> String {
        layer_phase(layer % 2, self.kinds[layer as usize], place)
    }

    /// Returns the phase that normalizes what a batch of the block in the first place has come to, and finds its most
    /// likely tokens.
    pub fn norm_phase(batch: usize) -> String {
        format!("norm.{batch}")
    }

    /// Lowers a model and blocks of so many batches of a shape, in one place or two. Matrices are sent in the formats
    /// given, and dequantized once a layer.
    ///
    /// # Errors
    /// [`PlanError`] if the sequence is longer than the model supports, there are no tokens or too many, no kernel
    /// reads a format, or tokens are asked for that cannot be.
    pub fn new(
        (config, formats): (&ModelConfig, &Formats),
        ((batch, seq_len), (batches, places)): ((u32, u32), (u32, usize)),
        (precision, top): (Precision, Option<TopTokens>),
        arch: Arch,
    ) -> Result<Self, PlanError> {
        top.map_or(Ok(()), |top| top.check(config))?;
        let dense = Formats::dense();
        // As many parameters as are on the device at a time.
        let (one, own) = of_each_mixer(config);
        let one = ModelConfig { vocab: 1, ..without_head(&one) };
        check((&without_head(config).cut(2), formats), (batch, seq_len), precision)?;
        let (dtype, hidden) = (precision.dtype(), u64::from(config.hidden));
        let tokens = u64::from(batch * seq_len);
        let mut b = Builder::new(&KERNELS, arch);
        let mut place = |name| {
            let formats = (&dense, dtype);
            Weights::frozen(&mut b, name, category::TEACHER_WEIGHTS, &one, formats, Passes::Forward)
        };
        let (first, second) = (place("model.first"), place("model.second"));
        let (_, ids) = each(&mut b, ("ids", category::INPUTS), Dtype::U32, (batches, tokens));
        let shape = Shape::packed(batch, seq_len);
        let mut place = |name: &&str| {
            let (all, streams) = each(&mut b, (name, category::STREAMS), dtype, (batches, tokens * hidden));
            let (name, words) = (format!("{name}.sequences"), Sequences::words_of(shape));
            let (_, lists) = each(&mut b, (&name, category::INPUTS), Dtype::U32, (batches, words));
            let lists = lists.into_iter().map(|list| Sequences::within(list, shape));
            (all, (streams, lists.collect::<Vec<Sequences>>()))
        };
        let (places, (streams, sequences)): (Vec<_>, (Vec<_>, Vec<_>)) =
            ["streams", "streams.second"][..places].iter().map(&mut place).unzip();
        let first = Resident::new(&mut b, "model", &one, first, (batch * seq_len, seq_len));
        let head = top.map(|_| HeadWeights::declare(&mut b, "head", config, dtype));
        let staged = staged(&mut b, &first.weights, (&own, formats));
        let ops = &mut Ops::new(&mut b, batch * seq_len, dtype, None);

        ops.phase(Self::EMBED);
        let embedding = embed(ops, (config, formats), &ids, &streams[0]);
        lower_layers(ops, (config, &own), (&first, &second), &staged, (&streams, &sequences));
        let normalize = |(index, stream): (usize, &Tensor)| {
            ops.phase(&Self::norm_phase(index));
            ops.scope("model");
            let hidden = ops.norm("norm", *stream, &first.weights.norm, Out::Dense).rows.dense();
            let hidden = ops.scaled("norm.scaled", hidden, config.multipliers.logits);
            results(ops, hidden, head.as_ref().zip(top))
        };
        let kinds = config.kinds();
        let kind_of = |layer| kinds.iter().position(|kind| kind == layer).expect("its own kind");
        let kinds = config.layers.iter().map(kind_of).collect();
        let results = streams[0].iter().enumerate().map(normalize).collect();
        let formats = formats.clone();
        Self::finish(
            b,
            SweepBuffers {
                ids,
                sequences,
                places,
                embedding,
                first,
                second,
                own,
                formats,
                staged,
                kinds,
                head,
                results,
            },
        )
    }

    /// Returns the parameters of a layer, each with the place that it is sent to before the layer's phase, and, where
    /// that is one of blocks, the phase that dequantizes it once all have been sent.
    pub fn layer(&self, layer: u32) -> impl Iterator<Item = (Parameter, Tensor, Option<String>)> {
        let weights = if layer.is_multiple_of(2) { &self.first.weights } else { &self.second };
        weights.list().filter_map(move |(parameter, weight)| {
            let own = parameter.of_layer(self.own[layer as usize], layer)?;
            let Some(block) = self.formats.of(&own.name) else { return Some((own, weight.tensor, None)) };
            let phase = dequant_phase(layer % 2, &parameter.name, block);
            Some((own, self.staged[&(parameter.name.clone(), block)], Some(phase)))
        })
    }

    /// Returns the weights of the norm before the head, and their place.
    pub fn norm(&self) -> (Parameter, Tensor) {
        let gamma = self.first.weights.norm.gamma.tensor;
        let own = self.first.weights.list().find(|(_, weight)| weight.tensor == gamma);
        own.map(|(parameter, weight)| (parameter.clone(), weight.tensor)).expect("a model has a norm")
    }
}
