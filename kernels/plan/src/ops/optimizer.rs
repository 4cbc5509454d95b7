//! Global norm, clip and AdamW.

use precast_kernels::abi::{adamw_params, grad_norm_finish_params, grad_norm_partial_params};
use precast_kernels::adamw::AdamwUpdate;
use precast_kernels::grad_norm::{self, GradNormFinish, GradNormPartial};
use precast_kernels::{Dtype, Format};

use super::Ops;
use crate::buffer::Tensor;
use crate::node::Exchange;
use crate::recipe::Recipe;
use crate::share::{Piece, Shards};
use crate::weights::{Trained, Weight};

/// What an update reads and writes besides the weights.
#[derive(Clone, Copy)]
pub(crate) struct StepTensors {
    /// `update_scalars`.
    pub update: Tensor,
    /// `step_metrics`.
    pub metrics: Tensor,
}

/// A range of weights that trains, and which of it this rank updates.
pub(crate) struct State<'s> {
    trained: Trained,
    /// What launches read: a copy of the master weights. In fp32 they read those.
    copy: Option<Tensor>,
    dtype: Dtype,
    shards: &'s Shards,
    /// Whether the rank has all master weights, in the places of the range.
    whole: bool,
}

/// A piece of the range: what comes behind the name of what is done to it, and where launches read it if it is copied.
struct Own {
    index: String,
    piece: Piece,
    copy: Option<Tensor>,
}

impl<'s> State<'s> {
    /// # Panics
    /// If the range does not train, or is of a format that the update cannot write.
    pub fn new(range: Weight, shards: &'s Shards, has_adapters: bool) -> Self {
        let trained = range.trained().expect("a range that trains");
        let Format::Dense(dtype) = range.tensor.format else { panic!("weights in blocks do not train") };
        let copy = (range.tensor != trained.master).then_some(range.tensor);
        let whole = shards.share().ranks == 1 || has_adapters || copy.is_none();
        Self { trained, copy, dtype, shards, whole }
    }

    /// What is zero before the weights come: what there is of each.
    pub fn cleared(&self) -> impl Iterator<Item = (&'static str, Tensor)> {
        let Trained { master, grad, m, v } = self.trained;
        let own = self.shards.own_elems();
        let masters = if self.whole { master.elems } else { own };
        let of = [("master", master, masters), ("grad", grad, grad.elems), ("m", m, own), ("v", v, own)];
        of.into_iter().filter(|(.., elems)| *elems > 0).map(|(name, tensor, elems)| (name, tensor.slice(0, elems)))
    }

    fn master(&self, piece: Piece) -> Tensor {
        self.trained.master.slice(if self.whole { piece.start } else { piece.local }, piece.elems)
    }

    /// What this rank updates.
    fn own(&self) -> Vec<Own> {
        let pieces = self.shards.own().into_iter().enumerate();
        let is_one = self.shards.share().ranks == 1;
        let own = |(index, piece): (usize, Piece)| Own {
            index: if is_one { String::new() } else { format!(".{index}") },
            piece,
            copy: self.copy.map(|copy| copy.slice(piece.start, piece.elems)),
        };
        pieces.map(own).collect()
    }
}

impl Ops<'_> {
    /// Makes the weights that launches read of the master weights.
    pub fn narrow(&mut self, state: &State<'_>) {
        let Some(weights) = state.copy else { return };
        if state.whole {
            return self.cast("weights", state.trained.master, weights);
        }
        for Own { index, piece, copy } in state.own() {
            copy.into_iter().for_each(|copy| self.cast(&format!("weights{index}"), state.master(piece), copy));
        }
        self.gather("weights", weights, state.shards);
    }

    /// Makes the master weights of the weights that launches read.
    pub fn widen(&mut self, state: &State<'_>) {
        let Some(weights) = state.copy else { return };
        if state.whole {
            return self.cast("master", weights, state.trained.master);
        }
        for Own { index, piece, copy } in state.own() {
            copy.into_iter().for_each(|copy| self.cast(&format!("master{index}"), copy, state.master(piece)));
        }
    }

    /// Updates a range of weights that trains, the first `decayed` elements of it with weight decay.
    pub fn adamw(&mut self, state: &State<'_>, decayed: u64, step: StepTensors, recipe: &Recipe) {
        let State { trained, dtype, .. } = state;
        let groups = trained.grad.elems.div_ceil(u64::from(grad_norm::GROUP));
        let partial = self.partial_sums(state, groups);
        let params = grad_norm_finish_params {
            partial: partial.address(),
            metrics: step.metrics.address(),
            count: groups as u32,
            clip: recipe.clip,
        };
        self.b.launch("grad_norm.finish", GradNormFinish {}, &params);
        for Own { index, piece, copy } in state.own() {
            let slice = |of: Tensor, start| of.slice(start, piece.elems).address();
            let params = adamw_params {
                grad: slice(trained.grad, piece.start),
                update: step.update.address(),
                metrics: step.metrics.address(),
                master: state.master(piece).address(),
                m: slice(trained.m, piece.local),
                v: slice(trained.v, piece.local),
                weights: copy.map_or(0, Tensor::address),
                n: piece.elems,
                decayed: decayed.saturating_sub(piece.start).min(piece.elems),
                beta1: Recipe::BETA1,
                beta2: Recipe::BETA2,
                eps: Recipe::EPS,
                weight_decay: recipe.weight_decay,
            };
            self.b.launch(format!("adamw{index}"), AdamwUpdate { w: *dtype }, &params);
        }
    }

    /// Sends what this rank has updated to all others, and takes what they have.
    pub fn spread(&mut self, state: &State<'_>) {
        match state.copy {
            Some(_) if state.whole => {
                self.gather("master", state.trained.master, state.shards);
                self.narrow(state);
            }
            copy => self.gather("weights", copy.unwrap_or(state.trained.master), state.shards),
        }
    }

    /// The partial sums of the norm, all of them on every rank.
    fn partial_sums(&mut self, state: &State<'_>, groups: u64) -> Tensor {
        let State { trained, shards, .. } = state;
        let share = shards.share();
        let sum = |ops: &mut Self, index: &str, piece: Piece, partial: Tensor| {
            let params = grad_norm_partial_params {
                grad: trained.grad.slice(piece.start, piece.elems).address(),
                partial: partial.address(),
                n: piece.elems,
                group: grad_norm::GROUP,
                reserved: 0,
            };
            ops.b.launch(format!("grad_norm.partial{index}"), GradNormPartial {}, &params);
        };
        let partial = self.b.transient("grad_norm.partial", Dtype::F32, groups);
        if share.ranks == 1 {
            sum(self, "", state.shards.own()[0], partial);
            return partial;
        }
        // A piece's own lie 16 bytes aligned; in their places they need not.
        let count = |piece: &Piece| piece.elems.div_ceil(grad_norm::GROUP.into());
        let pieces = state.own();
        let own_count: u64 = pieces.iter().map(|own| count(&own.piece).next_multiple_of(4)).sum();
        let own = self.b.transient("grad_norm.partial.own", Dtype::F32, own_count.max(4));
        let mut exchange = Exchange::default();
        let mut next = 0;
        for Own { index, piece, .. } in &pieces {
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
