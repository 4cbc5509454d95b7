//! Embedding: a row of the table for each token, and the gradient scattered back.
//!
//! Forward: `y[t] = table[ids[t]]`. Backward: `dtable[id] += sum of dy[t] over the tokens t with that id`.
//!
//! | operand | shape | dtype |
//! | --- | --- | --- |
//! | `ids`, `sorted_ids`, `sorted_positions` | tokens | u32 |
//! | `table` | vocab x h | x |
//! | `y`, `dy` | tokens x h | x |
//! | `dtable` | vocab x h | f32 |
//!
//! The scatter is deterministic: the host uploads the token ids sorted, so that one block owns each
//! distinct id and adds its rows in order. Nothing sorts or adds atomically on the device.
//! Source: `torch.nn.Embedding`.

mod host;

use crate::abi::{embedding_bwd_params, embedding_fwd_params};
use crate::host::Views;
use crate::{Arch, Build, Content, Dtype, Geometry, Kernel, Operand, Reference, Source, Threads, key, operand, source};

key! {
    /// Gather rows of an embedding table.
    pub struct EmbeddingFwd = "embedding.fwd" { h: u32, x: Dtype }
}

key! {
    /// Add gradients into the rows they came from.
    pub struct EmbeddingBwd = "embedding.bwd" { h: u32, x: Dtype }
}

impl Kernel for EmbeddingFwd {
    type Params = embedding_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, vocab, h) = (u64::from(p.tokens), u64::from(p.vocab), u64::from(self.h));
        vec![
            operand!(Read Self::Params, ids: Dtype::U32, tokens).with(Content::Ids(p.vocab)),
            operand!(Read Self::Params, table: self.x, vocab * h),
            operand!(Write Self::Params, y: self.x, tokens * h),
        ]
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        // A row of the table for each token.
        u64::from(p.tokens) * (Dtype::U32.bytes() + 2 * u64::from(self.h) * self.x.bytes())
    }
}

impl Build for EmbeddingFwd {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 128 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("embedding", "fwd.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(variant.threads / 32), variant.threads)
    }
}

impl Reference for EmbeddingFwd {
    fn examples() -> Vec<Self> {
        vec![Self { h: 33, x: Dtype::Bf16 }, Self { h: 4, x: Dtype::F32 }]
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 2), (37, 11), (300, 3)].map(|(tokens, vocab)| Self::Params { tokens, vocab, ..Default::default() }).into()
    }
}

impl Kernel for EmbeddingBwd {
    type Params = embedding_bwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, vocab, h) = (u64::from(p.tokens), u64::from(p.vocab), u64::from(self.h));
        vec![
            operand!(Read Self::Params, sorted_ids: Dtype::U32, tokens).with(Content::SortedIds(p.vocab)),
            operand!(Read Self::Params, sorted_positions: Dtype::U32, tokens).with(Content::PositionsOf("sorted_ids")),
            operand!(Read Self::Params, dy: self.x, tokens * h),
            operand!(ReadWrite Self::Params, dtable: Dtype::F32, vocab * h),
        ]
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let (tokens, h) = (u64::from(p.tokens), u64::from(self.h));
        // Rows of tokens that do not occur stay as they are.
        let rows = u64::from(p.tokens.min(p.vocab));
        tokens * (2 * Dtype::U32.bytes() + h * self.x.bytes()) + 2 * rows * h * Dtype::F32.bytes()
    }
}

impl Build for EmbeddingBwd {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 256 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("embedding", "bwd.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        let columns = (self.h / self.x.vector_width(self.h)).div_ceil(32).min(64);
        Geometry { grid: [p.tokens, columns, 1], ..Geometry::linear(1, variant.threads) }
    }
}

impl Reference for EmbeddingBwd {
    fn examples() -> Vec<Self> {
        // The last has more columns than a row of blocks takes at one time.
        let keys = [(7, Dtype::Bf16), (40, Dtype::Bf16), (40, Dtype::F32), (2085, Dtype::Bf16)];
        keys.map(|(h, x)| Self { h, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 2), (37, 11), (300, 3)].map(|(tokens, vocab)| Self::Params { tokens, vocab, ..Default::default() }).into()
    }
}
