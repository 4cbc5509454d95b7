//! Distance of two gradients: partial sums for their cosine and the ratio of their norms.
//!
//! `partial[0] = sum of a b`, `partial[1] = sum of a^2`, `partial[2] = sum of b^2` of each group of elements; the host adds groups
//! in f64: `cosine = ab / sqrt(aa bb)`, `norm ratio = sqrt(aa / bb)`.

mod host;

pub use crate::abi::GradDistancePartial;
use crate::host::Views;
use crate::{Arch, Batch, Build, Geometry, Reference, Source, Threads, source};

/// Elements per partial sum.
pub const GROUP: u32 = 1 << 15;

impl Build for GradDistancePartial {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 256 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("grad_distance", "partial.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.n.div_ceil(u64::from(p.group)) as u32, variant.threads)
    }
}

impl Reference for GradDistancePartial {
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
