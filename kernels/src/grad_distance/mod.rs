//! How far one gradient is from another: what their cosine and the ratio of their norms are made of.
//!
//! `partial[0] = sum of a b`, `partial[1] = sum of a^2`, `partial[2] = sum of b^2` of each group of elements; the host adds groups
//! in f64: `cosine = ab / sqrt(aa bb)`, `norm ratio = sqrt(aa / bb)`.
//!
//! | operand | shape | dtype |
//! | --- | --- | --- |
//! | `a`, `b` | n | f32 |
//! | `partial` | 3 x ceil(n / group) | f32 |

mod host;

use crate::abi::grad_distance_partial_params;
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Kernel, Operand, Reference, Source, Threads, key, operand, source};

key! {
    /// Sums of products of groups of elements.
    pub struct GradDistancePartial = "grad_distance.partial" {}
}

/// Elements that share one partial sum.
pub const GROUP: u32 = 1 << 15;

impl Kernel for GradDistancePartial {
    type Params = grad_distance_partial_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![
            operand!(Read Self::Params, a: Dtype::F32, p.n),
            operand!(Read Self::Params, b: Dtype::F32, p.n),
            operand!(Write Self::Params, partial: Dtype::F32, 3 * p.n.div_ceil(u64::from(p.group))),
        ]
    }
}

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
