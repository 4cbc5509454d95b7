//! Global gradient norm and its clip.
//!
//! `grad_norm = sqrt(sum of grad^2)` over one flat buffer, in two fixed steps;
//! `clip_scale = min(1, clip / (grad_norm + 1e-6))`, or 1 without a clip; `skipped = 1` if the norm is not
//! finite, so that the optimizer leaves the weights alone.
//!
//! Source: Pascanu et al., "On the difficulty of training recurrent neural networks", 2013; the 1e-6 is that
//! of `torch.nn.utils.clip_grad_norm_`.

mod host;

pub(crate) use host::dot;

pub use crate::abi::{GradNormFinish, GradNormPartial};
use crate::host::Views;
use crate::{Arch, Batch, Build, Geometry, Reference, Source, Threads, one_variant, source};

/// Elements per partial sum.
pub const GROUP: u32 = 1 << 15;

/// Builds and checks a kernel of dot products of groups of elements.
macro_rules! partial_of {
    ($kernel:ident, $family:literal) => {
        impl Build for $kernel {
            type Variant = Threads;

            fn variants(&self, _arch: Arch) -> Vec<Threads> {
                vec![Threads { threads: 256 }]
            }

            fn source(&self, _variant: Threads) -> Source {
                source!($family, "partial.cu")
            }

            fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
                Geometry::linear(p.n.div_ceil(u64::from(p.group)) as u32, variant.threads)
            }
        }

        impl Reference for $kernel {
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
    };
}

pub(crate) use partial_of;

partial_of!(GradNormPartial, "grad_norm");

impl Build for GradNormFinish {
    one_variant!(Threads { threads: 1024 });

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
