//! Column sums in two fixed steps, for bias gradients and the gamma gradients of the norms.
//!
//! `partial[g] = sum of x[r] over the rows r of group g`; `grad (+)= sum of partial[g] over all groups`.
//!
//! `finish` overwrites in the first micro-batch of a step and adds in later ones.
//! Source: the gradient of `y = x W^T + b` with respect to `b`.

mod host;

pub use crate::abi::{ColumnSumFinish, ColumnSumPartial};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Reference, Source, Threads, source};

impl Build for ColumnSumPartial {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        // 32 vectors of columns wide, 4 rows deep.
        vec![Threads { threads: 128 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("column_sum", "partial.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        let columns = (p.n / self.x.vector_width(p.n)).div_ceil(32).min(64);
        Geometry { grid: [p.rows.div_ceil(p.group), columns, 1], ..Geometry::linear(1, variant.threads) }
    }
}

impl Reference for ColumnSumPartial {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::partial(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // The last two have more columns, single and in vectors, than a row of CTAs takes at once.
        [(1, 3, 4), (29, 131, 8), (75, 528, 32), (5, 2085, 4), (3, 16456, 8)]
            .map(|(rows, n, group)| Self::Params { rows, n, group, ..Default::default() })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { rows: batch.tokens(), n: Batch::WIDTH, group: 32, ..Default::default() }
    }
}

impl Build for ColumnSumFinish {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        // 32 columns wide, 32 rows deep.
        vec![Threads { threads: 1024 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("column_sum", "finish.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.n.div_ceil(32), variant.threads)
    }
}

impl Reference for ColumnSumFinish {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::finish(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 3), (29, 131), (300, 64)].map(|(rows, n)| Self::Params { rows, n, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { rows: batch.tokens().div_ceil(32), n: Batch::WIDTH, ..Default::default() }
    }
}
