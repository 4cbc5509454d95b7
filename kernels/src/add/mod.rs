//! Add: adds a float buffer to another, in place.
//!
//! `y[i] = x[i] + y[i]`; `x` and `y` hold n elements, f32. Addition of two numbers is commutative, so either may be in
//! place. Source: none needed.

mod host;

pub use crate::abi::Add;
use crate::host::Views;
use crate::{Batch, Build, Geometry, Reference, Source, Threads, one_variant, source};

impl Build for Add {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("add", "add.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::strided(p.n, variant.threads)
    }
}

impl Reference for Add {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::add(views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 5003].map(|n| Self::Params { n, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { n: batch.elems(), ..Default::default() }
    }
}
