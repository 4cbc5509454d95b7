//! Global norm, clip and AdamW.

use precast_kernels::abi::{adamw_params, grad_norm_finish_params, grad_norm_partial_params};
use precast_kernels::adamw::AdamwUpdate;
use precast_kernels::grad_norm::{self, GradNormFinish, GradNormPartial};
use precast_kernels::{Dtype, Format};

use super::Ops;
use crate::buffer::Tensor;
use crate::recipe::Recipe;
use crate::weights::Weight;

/// What an update reads and writes besides the weights.
#[derive(Clone, Copy)]
pub(crate) struct StepTensors {
    /// `update_scalars`.
    pub update: Tensor,
    /// `step_metrics`.
    pub metrics: Tensor,
}

impl Ops<'_> {
    /// Updates a range of weights that trains, the first `decayed` elements of it with weight decay.
    ///
    /// # Panics
    /// If it does not train, or its weights are of a format that the update cannot write.
    pub fn adamw(&mut self, range: &Weight, decayed: u64, step: StepTensors, recipe: &Recipe) {
        let trained = range.trained().expect("a range that trains");
        let n = range.tensor.elems;
        let groups = n.div_ceil(u64::from(grad_norm::GROUP));
        let partial = self.b.transient("grad_norm.partial", Dtype::F32, groups);
        let params = grad_norm_partial_params {
            grad: trained.grad.address(),
            partial: partial.address(),
            n,
            group: grad_norm::GROUP,
            reserved: 0,
        };
        self.b.launch("grad_norm.partial", GradNormPartial {}, &params);
        let params = grad_norm_finish_params {
            partial: partial.address(),
            metrics: step.metrics.address(),
            count: groups as u32,
            clip: recipe.clip,
        };
        self.b.launch("grad_norm.finish", GradNormFinish {}, &params);
        let copy = (range.tensor != trained.master).then_some(range.tensor);
        let params = adamw_params {
            grad: trained.grad.address(),
            update: step.update.address(),
            metrics: step.metrics.address(),
            master: trained.master.address(),
            m: trained.m.address(),
            v: trained.v.address(),
            weights: copy.map_or(0, Tensor::address),
            n,
            decayed,
            beta1: Recipe::BETA1,
            beta2: Recipe::BETA2,
            eps: Recipe::EPS,
            weight_decay: recipe.weight_decay,
        };
        let Format::Dense(w) = range.tensor.format else { panic!("weights in blocks do not train") };
        self.b.launch("adamw", AdamwUpdate { w }, &params);
    }
}
