//! Scale: multiplies elements by a factor, and adds a residual stream.
//!
//! `y[i] = factor x[i]`, or `factor x[i] + residual[i]`, in f32 with one rounding; all hold n elements of the dtype
//! `x`. Source: Granite's multipliers, Gemma's embedding.

mod host;

pub use crate::abi::Scale;
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, Threads, one_variant, source};

impl Build for Scale {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("scale", "scale.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::strided(p.n, variant.threads)
    }
}

impl Reference for Scale {
    fn examples() -> Vec<Self> {
        let dtypes = [Dtype::Bf16, Dtype::F32];
        dtypes.into_iter().flat_map(|x| [false, true].map(|residual| Self { residual, x })).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::scale(p.factor, self.residual, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 3.0), (5003, -0.3)].map(|(n, factor)| Self::Params { n, factor, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { n: batch.elems(), factor: 0.22, ..Default::default() }
    }
}
