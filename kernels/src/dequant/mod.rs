//! Dequantization: weights in a block format of ggml, made dense.
//!
//! `x[i] = value(w, i)`, rounded once, to nearest even. Rows of a matrix are whole blocks and lie one after the other,
//! in blocks as when dense, so that a matrix, a part of its rows, or its part of a stack is n elements.
//!
//! | operand | shape | format |
//! | --- | --- | --- |
//! | `w` | n | w |
//! | `x` | n | x |
//!
//! The values are exact: the bits of ggml's reference (`dequantize_row_*`), on the host as on any GPU, so that
//! dequantizing at load and in each step give the same run. Sources: ggml-common.h, ggml-quants.c; "k-quants",
//! llama.cpp pull request 1684.

mod host;
mod kquants;
mod quants;

pub use crate::abi::Dequant;
use crate::host::Views;
use crate::{
    Batch, Block, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance, one_variant, source, variant,
};

pub use host::dequantize;

variant! {
    /// Several vectors per thread.
    pub struct Vectors {
        threads: u32,
        /// Vectors of 16 bytes of `x` per thread.
        vectors: u32,
    }
}

impl Build for Dequant {
    one_variant!(Vectors { threads: 256, vectors: 2 });

    fn source(&self, _variant: Vectors) -> Source {
        source!("dequant", "dequant.cu")
    }

    fn geometry(&self, variant: Vectors, p: &Self::Params) -> Geometry {
        let vectors = p.n / (16 / self.x.bytes());
        let ctas = vectors.div_ceil(u64::from(variant.threads * variant.vectors));
        Geometry::linear(u32::try_from(ctas).expect("a matrix has less than 2^40 elements"), variant.threads)
    }
}

impl Reference for Dequant {
    fn examples() -> Vec<Self> {
        let dtypes = [Dtype::Bf16, Dtype::F32].into_iter();
        dtypes.flat_map(|x| Block::ALL.map(|w| Self { w, x })).collect()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        let w = views.read::<u8>("w");
        dequantize(self.w, w, &mut views.store("x"));
    }

    fn samples(&self) -> Vec<Self::Params> {
        // One block, a few, and more than a CTA takes, from an address with no larger alignment than a block's.
        let many = (20_000 / self.w.elems()) | 1;
        let launches = [(0, 1), (0, 7), (self.w.align(), many)];
        launches.map(|(w, blocks)| Self::Params { w, n: blocks * self.w.elems(), ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { n: batch.elems(), ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
