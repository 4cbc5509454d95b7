//! Norm and rotation of rows at positions of their own, as decoding has them.

use super::{Heads, heads, host, lanes};
use crate::abi::QkNormAt;
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, one_variant};

impl Build for QkNormAt {
    one_variant!(Heads { heads: 4, threads: 32 });

    fn source(&self, _variant: Heads) -> Source {
        // A header of its own: other users of `qk_norm.h` do not depend on it.
        Source {
            path: "qk_norm/at.cu",
            text: include_str!("at.cu"),
            headers: &[
                ("qk_norm.h", include_str!("qk_norm.h")),
                ("qk_norm_at.h", include_str!("qk_norm_at.h")),
                ("qk_norm/head.cuh", include_str!("head.cuh")),
                ("qk_norm/groups.cuh", include_str!("groups.cuh")),
                ("qk_norm/normalize.cuh", include_str!("normalize.cuh")),
            ],
            common: &crate::COMMON,
        }
    }

    /// CTAs of a row along x.
    fn geometry(&self, variant: Heads, p: &Self::Params) -> Geometry {
        let groups = (p.query_heads + p.key_heads).div_ceil(variant.heads);
        let linear = Geometry::linear(groups.div_ceil(variant.threads / lanes(self.d, self.x)), variant.threads);
        Geometry { grid: [linear.grid[0], p.rows, 1], ..linear }
    }
}

impl Reference for QkNormAt {
    fn examples() -> Vec<Self> {
        [(64, Dtype::Bf16), (80, Dtype::F32)].map(|(d, x)| Self { d, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::at(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // In the last a row takes several CTAs.
        [(1, 1, 1, 1, 2, 1e-6), (15, 5, 3, 1, 6, 1e-2), (3, 40, 30, 5, 40, 1e-5)]
            .map(|(rows, seq_len, query_heads, key_heads, row_heads, eps)| Self::Params {
                rows,
                seq_len,
                query_heads,
                key_heads,
                row_heads,
                eps,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (rows, seq_len, [query_heads, key_heads, row_heads]) = (batch.tokens(), batch.seq_len, heads(self.d));
        Self::Params { rows, seq_len, query_heads, key_heads, row_heads, eps: 1e-6, ..Default::default() }
    }
}
