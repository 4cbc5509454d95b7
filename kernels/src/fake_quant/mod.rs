//! Fake quantization: weights as the blocks of a file will hold them.
//!
//! `x[i] = value(quantized(master), i)`, rounded once, to nearest even. Rows of a matrix are whole blocks, so that a
//! matrix is n elements.
//!
//! | operand | shape | dtype |
//! | --- | --- | --- |
//! | `master` | n | f32 |
//! | `x` | n | x |
//!
//! Q8_0 takes the largest magnitude as 127. Scales of all others have the least squared error among 15 candidates, each
//! fitted to the numbers that it rounds to. Every operation is one of f32 in one order, on the host as on any GPU, so
//! that a file that is written later has the values that were trained. Sources: Bengio et al., "Estimating or
//! Propagating Gradients Through Stochastic Neurons", 2013, for what trains through it; ggml-common.h for the blocks;
//! `make_qx_quants` and `make_qkx2_quants` of ggml-quants.c for the search.

mod quantize;
mod scales;

pub use crate::abi::FakeQuant;
use crate::abi::{SCALED_ELEMS, SCALED_ELEMS_Q6_K};
use crate::dequant::dequantize;
use crate::host::Views;
use crate::{
    Batch, Block, Build, Dtype, Geometry, Operand, Reference, Source, Threads, Tolerance, one_variant, source,
};

pub use quantize::quantize;

/// Formats that weights are quantized to.
pub const FORMATS: [Block; 5] = [Block::Q4_0, Block::Q5_0, Block::Q8_0, Block::Q4_K, Block::Q6_K];

/// Returns the elements of a thread: those that share a scale.
fn group(block: Block) -> u64 {
    u64::from(if block == Block::Q6_K { SCALED_ELEMS_Q6_K } else { SCALED_ELEMS })
}

impl Build for FakeQuant {
    one_variant!(Threads { threads: 128 });

    fn source(&self, _variant: Threads) -> Source {
        source!("fake_quant", "fake_quant.cu", "scales.cuh")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        let ctas = (p.n / group(self.w)).div_ceil(variant.threads.into());
        Geometry::linear(u32::try_from(ctas).expect("a matrix has less than 2^43 elements"), variant.threads)
    }
}

impl Reference for FakeQuant {
    fn examples() -> Vec<Self> {
        let dtypes = [Dtype::Bf16, Dtype::F32].into_iter();
        dtypes.flat_map(|x| FORMATS.map(|w| Self { w, x })).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        let mut blocks = vec![0; (p.n / self.w.elems() * self.w.bytes()) as usize];
        quantize(self.w, &views.load("master"), &mut blocks);
        dequantize(self.w, &blocks, &mut views.store("x"));
    }

    fn samples(&self) -> Vec<Self::Params> {
        // One block, a few, and more than a CTA takes.
        let many = (10_000 / self.w.elems()) | 1;
        [1, 7, many].map(|blocks| Self::Params { n: blocks * self.w.elems(), ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { n: batch.elems(), ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
