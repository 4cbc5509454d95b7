//! Rotation of rows that are decoded, with the bits of `rope.fwd`: keys go from the row to the pool without a launch of
//! their own.

use super::{Heads, host};
use crate::abi::{RopeStore, rope_store_params};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, one_variant};

impl Build for RopeStore {
    one_variant!(Heads { heads: 2, threads: 128 });

    fn source(&self, _variant: Heads) -> Source {
        Source {
            path: "rope/store.cu",
            text: include_str!("store.cu"),
            headers: &[
                ("rope.h", include_str!("rope.h")),
                ("rope_store.h", include_str!("rope_store.h")),
                ("rope/rotate.cuh", include_str!("rotate.cuh")),
                ("kv.h", include_str!("../kv/kv.h")),
                ("kv/pool.cuh", include_str!("../kv/pool.cuh")),
            ],
            common: &crate::COMMON,
        }
    }

    fn geometry(&self, variant: Heads, p: &rope_store_params) -> Geometry {
        let width = self.x.vector_width(self.d / 2);
        let groups = (p.heads + p.kv_heads).div_ceil(variant.heads);
        let items = groups * (self.d / 2 / width) + p.kv_heads * (self.d / width);
        Geometry::linear((p.rows * items).div_ceil(variant.threads), variant.threads)
    }
}

impl Reference for RopeStore {
    fn examples() -> Vec<Self> {
        [(48, Dtype::Bf16), (64, Dtype::F32), (12, Dtype::Bf16)].map(|(d, x)| Self { d, x }).into()
    }

    fn host(&self, p: &rope_store_params, views: &mut Views<'_>) {
        host::store(self.d, p, views);
    }

    fn samples(&self) -> Vec<rope_store_params> {
        [(1, 1, 1, 1, 1), (5, 7, 3, 3, 2), (9, 9, 5, 2, 1), (3, 4, 2, 12, 12)]
            .map(|(rows, slots, seq_len, heads, kv_heads)| rope_store_params {
                rows,
                slots,
                seq_len,
                heads,
                kv_heads,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> rope_store_params {
        let kv_heads = (Batch::WIDTH / 4 / self.d).max(1);
        let (rows, slots) = (batch.tokens(), batch.tokens());
        rope_store_params { rows, slots, seq_len: 16, heads: 4 * kv_heads, kv_heads, ..Default::default() }
    }
}
