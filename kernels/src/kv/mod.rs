//! A pool that keeps the keys and values of sequences while they are decoded.
//!
//! It has room for `slots` sequences of `seq_len` positions, keys and values apart, each as [`Pool`] lays them out. A
//! row of a launch is one token: `slot` names its sequence and `position` its place there; rows of `IDLE_SLOT` have
//! none. `kv.store` copies the bits of a row's keys, rotated, and of its values to their place; `attention.decode`
//! reads them.

mod host;
mod pool;

pub use crate::abi::KvStore;
pub use pool::Pool;

use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Operand, Reference, Source, Threads, Tolerance, one_variant, source};

impl Build for KvStore {
    one_variant!(Threads { threads: 128 });

    fn source(&self, _variant: Threads) -> Source {
        source!("kv", "store.cu", "pool.cuh")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.rows, variant.threads)
    }
}

impl Reference for KvStore {
    fn examples() -> Vec<Self> {
        [(48, Dtype::Bf16), (64, Dtype::F32)].map(|(d, x)| Self { d, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::store(self.d, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // The last has more vectors in a row than a CTA has threads.
        [(1, 1, 1, 1, 1), (5, 7, 3, 3, 2), (9, 9, 5, 2, 1), (3, 4, 2, 12, 12)]
            .map(|(rows, slots, seq_len, heads, kv_heads)| Self::Params {
                rows,
                slots,
                seq_len,
                heads,
                kv_heads,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let kv_heads = (Batch::WIDTH / 4 / self.d).max(1);
        let (rows, slots) = (batch.tokens(), batch.tokens());
        Self::Params { rows, slots, seq_len: 16, heads: 4 * kv_heads, kv_heads, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
