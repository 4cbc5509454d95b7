//! Cast: converts between float dtypes, rounding to nearest even; to the same dtype it copies.
//!
//! `y[i] = x[i]`; `x` and `y` hold n elements of the dtypes `from` and `to`.
//! Source: IEEE 754 conversion; bf16 is the upper half of a single.

mod host;

pub use crate::abi::Cast;
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, Threads, one_variant, source};

impl Build for Cast {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("cast", "cast.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::strided(p.n, variant.threads)
    }
}

impl Reference for Cast {
    fn examples() -> Vec<Self> {
        [(Dtype::Bf16, Dtype::F32), (Dtype::F32, Dtype::Bf16), (Dtype::F32, Dtype::F32)]
            .map(|(from, to)| Self { from, to })
            .into()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::cast(views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 5001].map(|n| Self::Params { n, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { n: batch.elems(), ..Default::default() }
    }
}
