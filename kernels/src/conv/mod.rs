//! Causal convolution of each channel over 4 tokens of its sequence, and SiLU.
//!
//! `c_t = sum_j w_j x_{t - 3 + j}`, with zeros before the sequence, rounded to dtype x; `y = silu(c)`. Backward
//! `dc = dy silu'(c)`, `dx_t = sum_j w_j dc_{t + 3 - j}` over the tokens of the sequence, `dw_j = sum_t dc_t x_{t - 3 + j}`.
//! The channels are the first elements of a row; what is behind them belongs to others.
//!
//! Source: `causal_conv1d` of Gu and Dao, "Mamba", 2023.

mod host;

pub use crate::abi::{ConvBwd, ConvDgrad, ConvFwd};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, Threads, one_variant, source};

/// Tokens that a convolution reads.
pub const TAPS: usize = 4;

/// (tokens, positions, channels, elements of a row)
const SAMPLES: [(u32, u32, u32, u32); 4] = [(1, 1, 1, 1), (9, 5, 72, 80), (37, 37, 16, 16), (70, 9, 259, 261)];

macro_rules! operation {
    ($kernel:ident, $host:ident, $file:literal $(, rows: [$few:literal, $many:literal])?) => {
        impl Build for $kernel {
            one_variant!(Threads { threads: 128 });

            fn source(&self, _variant: Threads) -> Source {
                source!("conv", $file)
            }

            fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
                Geometry::linear(p.tokens, variant.threads)
            }
        }

        impl Reference for $kernel {
            fn examples() -> Vec<Self> {
                [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
            }

            fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
                host::$host(*self, p, views);
            }

            fn samples(&self) -> Vec<Self::Params> {
                let of = |(tokens, seq_len, channels, row_columns)| {
                    Self::Params { tokens, seq_len, channels, row_columns, $(rows: $few,)? ..Default::default() }
                };
                SAMPLES.map(of).into()
            }

            fn typical(&self, batch: Batch) -> Self::Params {
                let (tokens, seq_len) = (batch.tokens(), batch.seq_len);
                Self::Params { tokens, seq_len, channels: 6144, row_columns: 8224, $(rows: $many,)? ..Default::default() }
            }
        }
    };
}

operation!(ConvFwd, fwd, "fwd.cu");
operation!(ConvBwd, bwd, "bwd.cu", rows: [8, 32]);
operation!(ConvDgrad, dgrad, "dgrad.cu");
