//! Fill: sets a float buffer to one value, always or only in the first micro-batch of a step.
//!
//! `y[i] = value`; with `first`, only while `micro.accumulate` is 0. `y` holds n elements, f32.
//! Source: none needed.

mod host;

pub use crate::abi::Fill;
use crate::host::Views;
use crate::{Batch, Build, Geometry, Reference, Source, Threads, one_variant, source};

impl Build for Fill {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("fill", "fill.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::strided(p.n, variant.threads)
    }
}

impl Reference for Fill {
    fn examples() -> Vec<Self> {
        [false, true].map(|first| Self { first }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fill(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 0.0), (5001, 2.5)].map(|(n, value)| Self::Params { n, value, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { n: batch.elems(), ..Default::default() }
    }
}
