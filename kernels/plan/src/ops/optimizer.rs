//! Global norm, clip and AdamW.

use std::ops::Range;

use precast_kernels::abi::{AdamwArgs, GradNormFinishArgs, GradNormPartialArgs};
use precast_kernels::grad_norm::{self, GradNormFinish, GradNormPartial};
use precast_kernels::{Dtype, Format, adamw::AdamwUpdate};

use super::Ops;
use crate::recipe::Recipe;
use crate::share::{Piece, Shards};
use crate::weights::{Rounded, Trained, Weight, Weights};
use precast_core::plan::{Exchange, Tensor};

/// Operands of an update besides the weights.
#[derive(Clone, Copy)]
pub(crate) struct StepTensors {
    /// `update_scalars`.
    pub update: Tensor,
    /// `step_metrics`.
    pub metrics: Tensor,
}

/// Most layers rounded and quantized concurrently: single ones keep no GPU busy. Large ones do, hence at least two.
const MOST_PLACES: u64 = 8;
/// Approximate bytes of their copies together: less than a micro-batch uses.
const PLACES_BYTES: u64 = 256 << 20;

/// A trained range of weights, and this rank's share of its update.
pub(crate) struct OptimizerState<'s> {
    trained: Trained,
    /// Copy of the master weights that launches read. In fp32 they read the masters.
    copy: Option<Tensor>,
    dtype: Dtype,
    /// Weights whose layers' matrices launches read quantized: from the copy, or, if that lacks them, from a temporary
    /// copy, one layer at a time.
    quantized: Option<&'s Weights>,
    /// Matrices whose copy has the values of blocks.
    rounded: &'s [Rounded],
    shards: &'s Shards,
    /// True if the rank holds all master weights, at their places in the range.
    whole: bool,
}

impl<'s> OptimizerState<'s> {
    /// # Panics
    /// If the range does not train, or the update cannot write its format.
    pub fn new(
        range: Weight,
        (quantized, rounded): (Option<&'s Weights>, &'s [Rounded]),
        shards: &'s Shards,
        has_whole_masters: bool,
    ) -> Self {
        let trained = range.trained().expect("a range that trains");
        let Format::Dense(dtype) = range.tensor.format else { panic!("weights in blocks do not train") };
        let copy = (range.tensor != trained.master).then_some(range.tensor);
        let whole = shards.share().ranks == 1 || has_whole_masters || copy.is_none();
        Self { trained, copy, dtype, quantized, rounded, shards, whole }
    }

    /// Returns the state to clear before the weights arrive, with names.
    pub fn cleared(&self) -> impl Iterator<Item = (&'static str, Tensor)> {
        let Trained { master, grad, m, v } = self.trained;
        let own = self.shards.own_elems();
        let masters = if self.whole { master.elems } else { own };
        let of = [("master", master, masters), ("grad", grad, grad.elems), ("m", m, own), ("v", v, own)];
        of.into_iter().filter(|(.., elems)| *elems > 0).map(|(name, tensor, elems)| (name, tensor.slice(0, elems)))
    }

    /// Returns so many of the gradients, which are cleared before the moments.
    pub fn cleared_grad(&self, elems: u64) -> Tensor {
        self.trained.grad.slice(0, elems)
    }

    /// True if ranks hold pieces of master weights that no working copy has.
    pub fn has_rounded_pieces(&self) -> bool {
        !self.whole && !self.rounded.is_empty()
    }

    fn master(&self, piece: Piece) -> Tensor {
        self.trained.master.slice(if self.whole { piece.start } else { piece.local }, piece.elems)
    }

    /// Returns the pieces, each with its suffix of operations' names.
    fn pieces(&self) -> Vec<(String, Piece)> {
        let pieces = self.shards.own().into_iter().enumerate();
        let is_one = self.shards.share().ranks == 1;
        pieces.map(|(index, piece)| (if is_one { String::new() } else { format!(".{index}") }, piece)).collect()
    }

    /// Returns the weights whose layers' matrices the copy lacks.
    fn lacked(&self) -> Option<&'s Weights> {
        let lacks = |copy: Tensor| copy.elems < self.trained.grad.elems;
        self.quantized.filter(|_| self.copy.is_some_and(lacks))
    }

    /// Returns the copied ranges of master weights, each with its copy: all, or those before and after the layers.
    fn copies(&self) -> Vec<(&'static str, Range<u64>, Tensor)> {
        let Some(copy) = self.copy else { return Vec::new() };
        let Some(weights) = self.lacked() else { return vec![("", 0..copy.elems, copy)] };
        let Range { start, end } = weights.parameters.matrices();
        let behind = copy.elems - start;
        vec![(".before", 0..start, copy.slice(0, start)), (".behind", end..end + behind, copy.slice(start, behind))]
    }

    /// Returns a range of the master weights, of a rank that has all.
    fn masters(&self, range: &Range<u64>) -> Tensor {
        self.trained.master.slice(range.start, range.end - range.start)
    }

    /// Returns the copy that the update writes. One of rounded masters alone, and a temporary one, as a skipped step
    /// writes none, are made after it.
    fn updated_copy(&self) -> Option<Tensor> {
        self.copy.filter(|_| self.lacked().is_none() && self.dtype != Dtype::F32)
    }
}

impl Ops<'_> {
    /// Makes the weights that launches read from the master weights.
    pub fn narrow(&mut self, state: &OptimizerState<'_>) {
        let Some(weights) = state.copy else { return };
        if state.whole {
            for (name, range, copy) in state.copies() {
                let (name, master) = (format!("weights{name}"), state.masters(&range));
                self.cast(&name, master, copy);
                self.round(&name, state.rounded, &range, [master, copy]);
            }
        } else {
            self.narrow_pieces(state, weights, true);
            self.gather("weights", weights, state.shards);
        }
        match state.lacked() {
            Some(weights) => self.narrow_layers(weights, state),
            None => self.quantize_copy(state),
        }
    }

    /// Makes this rank's pieces of the copy; of those that the update has written, the rounded matrices alone.
    fn narrow_pieces(&mut self, state: &OptimizerState<'_>, copy: Tensor, casts: bool) {
        for (index, piece) in state.pieces() {
            let range = piece.start..piece.start + piece.elems;
            let (name, master, copy) =
                (format!("weights{index}"), state.master(piece), copy.slice(piece.start, piece.elems));
            if casts {
                self.cast(&name, master, copy);
            }
            self.round(&name, state.rounded, &range, [master, copy]);
        }
    }

    /// Rounds and quantizes the matrices of layers, layer by layer.
    fn narrow_layers(&mut self, weights: &Weights, state: &OptimizerState<'_>) {
        let layers: Vec<Range<u64>> = (0..weights.layers.len()).map(|layer| weights.parameters.layer(layer)).collect();
        let largest = layers.iter().map(|range| range.end - range.start).max().unwrap_or(1);
        let count = (PLACES_BYTES / state.dtype.bytes() / largest).clamp(2, MOST_PLACES).min(layers.len() as u64);
        let places: Vec<Tensor> = (0..count).map(|place| self.elements(&format!("layers.{place}"), largest)).collect();
        for (layer, range) in layers.into_iter().enumerate() {
            let copy = places[layer % places.len()].slice(0, range.end - range.start);
            let name = format!("layers.{layer}.weights");
            let master = state.masters(&range);
            self.cast(&name, master, copy);
            self.round(&name, state.rounded, &range, [master, copy]);
            self.quantize_layer(weights, layer, copy);
        }
    }

    /// Quantizes the matrices of layers from the full copy.
    fn quantize_copy(&mut self, state: &OptimizerState<'_>) {
        if let Some((weights, copy)) = state.quantized.zip(state.copy) {
            self.quantize_layers(weights, copy, 0..weights.layers.len());
        }
    }

    /// Makes the master weights from the weights that launches read; those with temporary copies are made as they are
    /// sent.
    pub fn widen(&mut self, state: &OptimizerState<'_>) {
        let Some(weights) = state.copy else { return };
        if state.whole {
            for (name, range, copy) in state.copies() {
                self.cast(&format!("master{name}"), copy, state.masters(&range));
            }
            return;
        }
        for (index, piece) in state.pieces() {
            let copy = weights.slice(piece.start, piece.elems);
            self.cast(&format!("master{index}"), copy, state.master(piece));
        }
        self.quantize_copy(state);
    }

    /// Updates a trained range of weights, its first `decayed` elements with weight decay.
    pub fn adamw(&mut self, state: &OptimizerState<'_>, decayed: u64, step: StepTensors, recipe: &Recipe) {
        let OptimizerState { trained, .. } = state;
        let groups = trained.grad.elems.div_ceil(u64::from(grad_norm::GROUP));
        let partial = self.partial_sums(state, groups);
        let args = GradNormFinishArgs { partial, metrics: step.metrics, count: groups as u32, clip: recipe.clip };
        self.b.launch("grad_norm.finish", GradNormFinish {}, args);
        let copy = state.updated_copy();
        let w = if copy.is_some() { state.dtype } else { Dtype::F32 };
        let key = AdamwUpdate { moments: recipe.moments, w };
        for (index, piece) in state.pieces() {
            let slice = |of: Tensor, start| of.slice(start, piece.elems);
            let args = AdamwArgs {
                grad: slice(trained.grad, piece.start),
                update: step.update,
                metrics: step.metrics,
                master: state.master(piece),
                m: slice(trained.m, piece.local),
                v: slice(trained.v, piece.local),
                weights: copy.map(|copy| slice(copy, piece.start)),
                n: piece.elems,
                decayed: decayed.saturating_sub(piece.start).min(piece.elems),
                beta1: Recipe::BETA1,
                beta2: Recipe::BETA2,
                eps: Recipe::EPS,
                weight_decay: recipe.weight_decay,
                first: piece.start,
            };
            self.b.launch(format!("adamw{index}"), key, args);
        }
        match state.copy {
            Some(all) if !state.whole => self.narrow_pieces(state, all, copy.is_none()),
            // Each rank rounds all once it has all masters.
            Some(_) if state.shards.share().ranks > 1 => {}
            Some(_) if copy.is_none() => self.narrow(state),
            Some(all) => self.round("weights", state.rounded, &(0..all.elems), [trained.master, all]),
            None => {}
        }
    }

    /// Sends this rank's updates to all others, and receives theirs. If `divided`, it quantizes its share of the layers
    /// and sends that, too; else it quantizes all of them.
    pub fn spread(&mut self, state: &OptimizerState<'_>, divided: bool) {
        match state.copy {
            Some(_) if state.whole => {
                self.gather("master", state.trained.master, state.shards);
                self.narrow(state);
            }
            copy => {
                self.gather("weights", copy.unwrap_or(state.trained.master), state.shards);
                match state.quantized.zip(copy) {
                    Some((weights, copy)) if divided => self.quantize_part(weights, copy, state.shards),
                    _ => self.quantize_copy(state),
                }
            }
        }
    }

    /// Sends this rank's master weights to all ranks, which receive those of all in their gradients' places.
    pub fn collect_masters(&mut self, state: &OptimizerState<'_>) {
        let OptimizerState { trained, shards, .. } = state;
        let ranks = 0..shards.share().ranks;
        let own: Vec<Tensor> = shards.own().into_iter().map(|piece| state.master(piece)).collect();
        let sends = ranks.clone().flat_map(|rank| own.iter().map(move |tensor| (rank, *tensor))).collect();
        let of = |rank: u32| shards.pieces(rank).into_iter().map(move |piece| (rank, piece));
        let place = |(rank, piece): (u32, Piece)| (rank, trained.grad.slice(piece.start, piece.elems));
        let exchange = Exchange { sends, receives: ranks.flat_map(of).map(place).collect() };
        self.b.exchange(self.name("masters"), exchange);
    }

    /// Lowers the partial sums of the norm; every rank gets all of them.
    fn partial_sums(&mut self, state: &OptimizerState<'_>, groups: u64) -> Tensor {
        let OptimizerState { trained, shards, .. } = state;
        let share = shards.share();
        let sum = |ops: &mut Self, index: &str, piece: Piece, partial: Tensor| {
            let args = GradNormPartialArgs {
                grad: trained.grad.slice(piece.start, piece.elems),
                partial,
                n: piece.elems,
                group: grad_norm::GROUP,
            };
            ops.b.launch(format!("grad_norm.partial{index}"), GradNormPartial {}, args);
        };
        let partial = self.b.transient("grad_norm.partial", Dtype::F32, groups);
        if share.ranks == 1 {
            sum(self, "", state.shards.own()[0], partial);
            return partial;
        }
        // Own pieces are 16-byte aligned; places in the range need not be.
        let count = |piece: &Piece| piece.elems.div_ceil(grad_norm::GROUP.into());
        let pieces = state.pieces();
        let own_count: u64 = pieces.iter().map(|(_, piece)| count(piece).next_multiple_of(4)).sum();
        let own = self.b.transient("grad_norm.partial.own", Dtype::F32, own_count.max(4));
        let mut exchange = Exchange::default();
        let mut next = 0;
        for (index, piece) in &pieces {
            let sums = own.slice(next, count(piece));
            next += count(piece).next_multiple_of(4);
            sum(self, index, *piece, sums);
            exchange.sends.extend((0..share.ranks).map(|rank| (rank, sums)));
        }
        for rank in 0..share.ranks {
            let place = |piece: &Piece| partial.slice(piece.start / u64::from(grad_norm::GROUP), count(piece));
            exchange.receives.extend(shards.pieces(rank).iter().map(|piece| (rank, place(piece))));
        }
        self.scope("ranks");
        self.b.exchange(self.name("grad_norm"), exchange);
        partial
    }
}
