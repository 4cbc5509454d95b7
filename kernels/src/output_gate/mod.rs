//! The gate of attention's output: `y = o sigmoid(gate)`, where the sigmoid is rounded to dtype x.
//!
//! Backward, with `s = sigmoid(gate)`: `do = dy s`, `dgate = dy o s (1 - s)`. A row of `packed` is `[query, gate]` of
//! each head first, as one GEMM writes it.
//!
//! Source: Qiu et al., "Gated Attention for Large Language Models", 2025.

mod host;

pub use crate::abi::{OutputGateBwd, OutputGateFwd};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, Threads, one_variant, source};

/// (tokens, heads, heads of a row of `packed`)
const SAMPLES: [(u32, u32, u32); 4] = [(1, 1, 2), (7, 3, 8), (19, 2, 6), (2, 9, 20)];

macro_rules! operation {
    ($kernel:ident, $host:ident, $file:literal) => {
        impl Build for $kernel {
            one_variant!(Threads { threads: 256 });

            fn source(&self, _variant: Threads) -> Source {
                source!("output_gate", $file, "place.cuh")
            }

            /// A few CTAs per token: a thread for each vector of its heads.
            fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
                let vectors = p.heads * (self.d / self.x.vector_width(self.d));
                Geometry::linear(p.tokens * vectors.div_ceil(variant.threads), variant.threads)
            }
        }

        impl Reference for $kernel {
            fn examples() -> Vec<Self> {
                [(256, Dtype::Bf16), (64, Dtype::F32)].map(|(d, x)| Self { d, x }).into()
            }

            fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
                host::$host(*self, p, views);
            }

            fn samples(&self) -> Vec<Self::Params> {
                let of = |(tokens, heads, row_heads)| Self::Params { tokens, heads, row_heads, ..Default::default() };
                SAMPLES.map(of).into()
            }

            fn typical(&self, batch: Batch) -> Self::Params {
                let heads = (Batch::WIDTH / self.d).max(1);
                Self::Params { tokens: batch.tokens(), heads, row_heads: 5 * heads / 2, ..Default::default() }
            }
        }
    };
}

operation!(OutputGateFwd, fwd, "fwd.cu");
operation!(OutputGateBwd, bwd, "bwd.cu");
