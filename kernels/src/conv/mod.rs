//! Causal convolution of each channel over 4 tokens of its sequence, and SiLU.
//!
//! `c_t = sum_j w_j x_{t - 3 + j}`, with zeros before the sequence, rounded to dtype x; `y = silu(c)`. Backward
//! `dc = dy silu'(c)`, `dx_t = sum_j w_j dc_{t + 3 - j}` over the tokens of the sequence,
//! `dw_j = sum_t dc_t x_{t - 3 + j}`. The channels are the first elements of a row; those behind them belong to
//! others.
//!
//! Source: `causal_conv1d` of Gu and Dao, "Mamba", 2023.

mod decode;
mod host;

use crate::abi::CONV_TAPS;
pub use crate::abi::{ConvBwd, ConvDecode, ConvDgrad, ConvFwd};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, one_variant, source, variant};

/// Tokens that a convolution reads.
pub const TAPS: u32 = CONV_TAPS;

/// (tokens, positions, channels, elements of a row)
const SAMPLES: [(u32, u32, u32, u32); 4] = [(1, 1, 1, 1), (9, 5, 72, 80), (37, 37, 16, 16), (70, 9, 259, 261)];

variant! {
    /// A thread slides over a run of `tokens` tokens.
    pub struct Run {
        /// CTAs that fit on a multiprocessor.
        blocks: u32,
        threads: u32,
        /// Tokens of a run: those in front of it are read twice.
        tokens: u32,
    }
}

variant! {
    /// A thread slides over the tokens of a partial sum.
    pub struct Group {
        /// CTAs that fit on a multiprocessor.
        blocks: u32,
        threads: u32,
    }
}

/// Implements an operation: its variant and the tokens of its runs, and those of a partial sum, few and many.
macro_rules! operation {
    (
        $kernel:ident, $host:ident, $file:literal $(, $header:literal)?;
        $variant:ident { $($fields:tt)* }, |$run:ident, $p:ident| $tokens:expr $(, rows: [$few:literal, $many:literal])?
    ) => {
        impl Build for $kernel {
            one_variant!($variant { $($fields)* });

            fn source(&self, _variant: $variant) -> Source {
                source!("conv", $file, "run.cuh" $(, $header)?)
            }

            /// CTAs for each run, with a thread for each vector of channels.
            fn geometry(&self, $run: $variant, $p: &Self::Params) -> Geometry {
                let width = self.x.vector_width($p.channels).min(self.x.vector_width($p.row_columns));
                let segments = ($p.channels / width).div_ceil($run.threads);
                Geometry::linear(segments * $p.tokens.div_ceil($tokens), $run.threads)
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
                let (tokens, seq_len, channels, row_columns) = (batch.tokens(), batch.seq_len, 6144, 8224);
                Self::Params { tokens, seq_len, channels, row_columns, $(rows: $many,)? ..Default::default() }
            }
        }
    };
}

operation!(ConvFwd, fwd, "fwd.cu"; Run { blocks: 5, threads: 128, tokens: 32 }, |run, p| run.tokens);
operation!(
    ConvBwd, bwd, "bwd.cu", "gradient.cuh";
    Group { blocks: 3, threads: 128 }, |run, p| p.rows, rows: [8, 32]
);
operation!(
    ConvDgrad, dgrad, "dgrad.cu", "gradient.cuh";
    Run { blocks: 4, threads: 128, tokens: 32 }, |run, p| run.tokens
);
