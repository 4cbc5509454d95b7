//! Global gradient norm and the clip that follows from it.
//!
//! `grad_norm = sqrt(sum of grad^2)` over one flat buffer, in two fixed steps;
//! `clip_scale = min(1, clip / (grad_norm + 1e-6))`, or 1 without a clip; `skipped = 1` if the norm is not
//! finite, so that the optimizer leaves the weights alone.
//!
//! | operand | shape | dtype |
//! | --- | --- | --- |
//! | `grad` | n | f32 |
//! | `partial` | ceil(n / group) | f32 |
//! | `metrics` | one `step_metrics` | |
//!
//! Source: Pascanu et al., "On the difficulty of training recurrent neural networks", 2013; the 1e-6 is that
//! of `torch.nn.utils.clip_grad_norm_`.

mod host;

use crate::abi::{grad_norm_finish_params, grad_norm_partial_params};
use crate::host::Views;
use crate::{
    Arch, Batch, Build, Content, Dtype, Geometry, Kernel, Operand, Reference, Source, Threads, key, operand, source,
};

key! {
    /// Sums of squares of groups of elements.
    pub struct GradNormPartial = "grad_norm.partial" {}
}

key! {
    /// Norm, clip and the finite check.
    pub struct GradNormFinish = "grad_norm.finish" {}
}

/// Elements that share one partial sum.
pub const GROUP: u32 = 1 << 15;

impl Kernel for GradNormPartial {
    type Params = grad_norm_partial_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![
            operand!(Read Self::Params, grad: Dtype::F32, p.n),
            operand!(Write Self::Params, partial: Dtype::F32, p.n.div_ceil(u64::from(p.group))),
        ]
    }
}

impl Build for GradNormPartial {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 256 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("grad_norm", "partial.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.n.div_ceil(u64::from(p.group)) as u32, variant.threads)
    }
}

impl Reference for GradNormPartial {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::partial(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, GROUP), (70_001, GROUP), (1000, 256)]
            .map(|(n, group)| Self::Params { n, group, ..Default::default() })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { n: batch.elems(), group: GROUP, ..Default::default() }
    }
}

impl Kernel for GradNormFinish {
    type Params = grad_norm_finish_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![
            operand!(Read Self::Params, partial: Dtype::F32, p.count).with(Content::Uniform(0.0, 1.0)),
            operand!(ReadWrite Self::Params, metrics: Dtype::F32, 6).with(Content::Metrics),
        ]
    }
}

impl Build for GradNormFinish {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 1024 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("grad_norm", "finish.cu")
    }

    fn geometry(&self, variant: Threads, _p: &Self::Params) -> Geometry {
        Geometry::linear(1, variant.threads)
    }
}

impl Reference for GradNormFinish {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::finish(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 0.0), (3001, 1.0), (70_000, 1e6)]
            .map(|(count, clip)| Self::Params { count, clip, ..Default::default() })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let count = batch.elems().div_ceil(GROUP.into()) as u32;
        Self::Params { count, clip: 1.0, ..Default::default() }
    }
}
