//! Embedding: gathers a row of the table per token, and scatters the gradient back.
//!
//! Forward: `y[t] = table[ids[t]]`. Backward: `dtable[id] += sum of dy[t] over the tokens t with that id`, but for the
//! id of padding.
//!
//! A table is dense, of the activations' dtype, or in a block format whose rows are dequantized as they are gathered.
//! The scatter is deterministic: the host uploads the token ids sorted, so that one CTA owns each
//! distinct id and adds its rows in order. Nothing sorts or adds atomically on the device.
//! Source: `torch.nn.Embedding`.

mod host;

pub use crate::abi::{EmbeddingBwd, EmbeddingFwd};
use crate::host::Views;
use crate::{
    Arch, Batch, Block, Build, Dtype, Format, Geometry, Operand, Reference, Source, Threads, Tolerance, one_variant,
    source,
};

impl Build for EmbeddingFwd {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        let computed = match self.w {
            Format::Dense(w) => w == self.x,
            Format::Block(_) => self.w.fits(self.h.into()),
        };
        computed.then_some(Threads { threads: 128 }).into_iter().collect()
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
        let dense = [(33, Dtype::Bf16), (4, Dtype::F32)].map(|(h, x)| Self { h, w: x.into(), x });
        let of = |(index, block): (usize, Block)| {
            let x = [Dtype::Bf16, Dtype::F32][index % 2];
            Self { h: 3 * block.elems() as u32, w: Format::Block(block), x }
        };
        dense.into_iter().chain(Block::ALL.into_iter().enumerate().map(of)).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 2), (37, 11), (300, 3)].map(|(tokens, vocab)| Self::Params { tokens, vocab, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), vocab: Batch::VOCAB, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}

impl Build for EmbeddingBwd {
    one_variant!(Threads { threads: 256 });

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
        // The last has more columns than a row of CTAs takes at once.
        let keys = [(7, Dtype::Bf16), (40, Dtype::Bf16), (40, Dtype::F32), (2085, Dtype::Bf16)];
        keys.map(|(h, x)| Self { h, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // The second and third are launches that ncu has counted.
        let of = |(tokens, vocab, padding)| Self::Params { tokens, vocab, padding, ..Default::default() };
        [(1, 2, 0), (37, 11, u32::MAX), (300, 3, u32::MAX)].map(of).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), vocab: Batch::VOCAB, padding: u32::MAX, ..Default::default() }
    }
}
