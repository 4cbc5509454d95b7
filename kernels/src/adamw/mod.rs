//! AdamW on fp32 master weights, every parameter of the model in one launch.
//!
//! With `g = clip_scale * grad`, for element i of a flat buffer: `m = beta1 m + (1 - beta1) g`,
//! `v = beta2 v + (1 - beta2) g^2`, `w -= lr * (decay * w + (m / c1) / (sqrt(v / c2) + eps))`, with
//! `decay = weight_decay` for the first `decayed` elements and 0 after them, and `c1 = 1 - beta1^step`,
//! `c2 = 1 - beta2^step`. With `w=bf16` the rounded master also goes to `weights`. Nothing changes while
//! `metrics.skipped` is set.
//!
//! With `moments=bf16` the update uses m and v as computed, and stores them rounded stochastically: the mean of what is
//! stored is the value, where the nearest bf16 of v would never move, as a step changes v by less than half of what a
//! bf16 counts. The random bits are a hash of the step and the element's index in all that trains.
//!
//! Sources: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019; Zamirai et al., "Revisiting BFloat16
//! Training", 2020.

mod host;
mod rounding;

pub use crate::abi::AdamwUpdate;
use crate::host::Views;
use crate::{
    Batch, Build, Dtype, Geometry, Moments, Operand, Reference, Source, Threads, Tolerance, one_variant, source,
};

impl Build for AdamwUpdate {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("adamw", "update.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        // A vector of four per thread.
        let blocks = p.n.div_ceil(4 * u64::from(variant.threads)).min(1 << 30);
        Geometry::linear(blocks as u32, variant.threads)
    }
}

impl Reference for AdamwUpdate {
    fn examples() -> Vec<Self> {
        let all = Moments::ALL.map(|moments| [Dtype::Bf16, Dtype::F32].map(|w| Self { moments, w }));
        all.concat()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::update(*self, p, views);
    }

    /// With numbers that nobody takes for granted, and an eps that shows.
    fn samples(&self) -> Vec<Self::Params> {
        // The second is a piece in which indices begin to need more than 32 bits.
        [(1, 0, 0), (5003, 1234, (1 << 32) - 2000)]
            .map(|(n, decayed, first)| Self::Params {
                n,
                decayed,
                first,
                beta1: 0.8,
                beta2: 0.97,
                eps: 0.05,
                weight_decay: 0.2,
                ..Default::default()
            })
            .into()
    }

    /// Other random bits would pass for the rounding of a bf16: of the moments, only few elements may differ, where f32
    /// is rounded otherwise before.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        let all = Tolerance::of(operand.format);
        let is_moment = ["m", "v"].contains(&operand.name);
        if is_moment && self.moments.are_rounded() { Tolerance { norm: 3e-4, ..all } } else { all }
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let n = batch.elems();
        Self::Params { n, decayed: n, ..self.samples()[0] }
    }
}
