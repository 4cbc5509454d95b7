//! Rotation of rows at positions of their own, as decoding has them.

use super::{Heads, host};
use crate::abi::RopeAt;
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, one_variant};

impl Build for RopeAt {
    one_variant!(Heads { heads: 4, threads: 32 });

    fn source(&self, _variant: Heads) -> Source {
        // A header of its own: other users of `rope.h` do not depend on it.
        Source {
            path: "rope/at.cu",
            text: include_str!("at.cu"),
            headers: &[
                ("rope.h", include_str!("rope.h")),
                ("rope_at.h", include_str!("rope_at.h")),
                ("rope/rotate.cuh", include_str!("rotate.cuh")),
            ],
            common: &crate::COMMON,
        }
    }

    /// CTAs of a row along x.
    fn geometry(&self, variant: Heads, p: &Self::Params) -> Geometry {
        let width = self.x.vector_width(self.d / 2).min(self.x.vector_width(p.row_stride));
        let vectors = p.heads.div_ceil(variant.heads) * (self.d / 2 / width);
        let linear = Geometry::linear(vectors.div_ceil(variant.threads), variant.threads);
        Geometry { grid: [linear.grid[0], p.rows, 1], ..linear }
    }
}

impl Reference for RopeAt {
    fn examples() -> Vec<Self> {
        [(48, Dtype::Bf16), (64, Dtype::F32)].map(|(d, x)| Self { d, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::at(self.d, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // The last has rows of no whole vectors; in that before it a row takes several CTAs.
        [(1, 1, 1, 0, 0), (15, 5, 3, 2, 0), (3, 40, 41, 1, 0), (6, 3, 5, 0, 1)]
            .map(|(rows, seq_len, heads, rest, ragged)| Self::Params {
                rows,
                seq_len,
                heads,
                row_stride: (heads + rest) * self.d + ragged,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (rows, seq_len, heads) = (batch.tokens(), batch.seq_len, Batch::WIDTH / self.d);
        Self::Params { rows, seq_len, heads, row_stride: heads * self.d, ..Default::default() }
    }
}
