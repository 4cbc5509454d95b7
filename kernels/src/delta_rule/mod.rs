//! The gated delta rule: linear attention whose state forgets, and is corrected by what it predicts wrongly.
//!
//! A value head has a state S `[128, 128]`, zeros before its sequence, and reads queries q and keys k of the key head
//! `head / (value_heads / key_heads)`, normalized: `q / sqrt(sum q^2 + 1e-6) / sqrt(128)`, `k / sqrt(sum k^2 + 1e-6)`.
//! With `beta = sigmoid(b)` and `g = -exp(a_log) softplus(a + dt_bias)`, a token does
//! `S <- exp(g) S; S <- S + k (beta (v - S^T k))^T; o = S^T q`.
//!
//! Chunks of 64 tokens from a sequence's start are computed together. With G the sum of g within a chunk, and
//! `D_ij = exp(G_i - G_j)` for `j <= i`: `A_ij = beta_i (k_i . k_j) D_ij` for `j < i`, `T = (I + A)^-1`,
//! `P = (q k^T) o D`, and S the state before it, `v_new = T (beta (v - exp(G) k S))`, `o = exp(G) q S + P v_new` and
//! `S' = exp(G_64) S + (exp(G_64 - G) k)^T v_new`. `solve` computes G, T and P by chunk, `fwd` the rest from chunk to
//! chunk.
//!
//! Backward, `state_bwd` goes from the last chunk to the first: `dv_new = P^T do + exp(G_64 - G) k dS'`,
//! `X = T^T dv_new` (the gradient of `beta v`), `dS = exp(G_64) dS' + (exp(G) q)^T do - (beta exp(G) k)^T X`. `bwd`
//! computes all other gradients by chunk: with `Z = -X S^T`, `dA = -(X v_new^T)` and `dP = do v_new^T`,
//! `dq = (dP o D) k + exp(G) do S^T`, `dk = (dP o D)^T q + exp(G_64 - G) v_new dS'^T + beta exp(G) Z + (B + B^T) k`
//! with `B = beta dA o D`; those of a key head are sums over its value heads, in order.
//!
//! In bf16, roundings before a GEMM: S, T, P, `beta (v - exp(G) k S)`, v_new, it times its decay and k's factor,
//! `dP o D` and `B + B^T` times factors of q and k. The state and its gradient are summed in f32. A token has the bits
//! that it has alone, whatever is behind it.
//!
//! Sources: Yang et al., "Gated Delta Networks", 2024; Yang et al., "Parallelizing linear transformers with the delta
//! rule", 2024.

mod decode;
mod decode_host;
mod host;
mod variants;
mod variants_bwd;

use crate::abi::{
    DELTA_CHUNK, DELTA_HEAD, delta_rule_bwd_params, delta_rule_fwd_params, delta_rule_solve_params,
    delta_rule_state_bwd_params,
};
pub use crate::abi::{DeltaRuleBwd, DeltaRuleDecode, DeltaRuleFwd, DeltaRuleSolve, DeltaRuleStateBwd};
use crate::host::Views;
use crate::{Batch, Dtype, Reference};

/// Elements of a head.
pub const HEAD: u32 = DELTA_HEAD;

/// Tokens of a chunk.
pub const CHUNK: u32 = DELTA_CHUNK;

/// Returns the chunks of sequences of so many tokens in all, at most.
pub fn chunks(tokens: u32, count: u32) -> u32 {
    tokens / DELTA_CHUNK + count
}

/// (tokens, sequences at most, tokens of each at most, key heads, value heads): a single token, full chunks, ragged
/// ones, several value heads a key head, many short sequences.
const SAMPLES: [(u32, u32, u32, u32, u32); 5] =
    [(1, 1, 1, 1, 1), (64, 1, 64, 1, 2), (130, 4, 65, 2, 2), (200, 2, 200, 1, 4), (90, 40, 70, 1, 1)];

/// Sizes of a launch that a benchmark times.
fn typical(batch: Batch) -> (u32, u32, u32, u32, u32) {
    (batch.tokens(), batch.sequences, batch.seq_len, 16, 16)
}

macro_rules! operation {
    ($kernel:ident($params:ident), $host:ident, $examples:expr, |$p:ident| { $($field:ident: $value:expr),* }) => {
        impl Reference for $kernel {
            fn examples() -> Vec<Self> {
                $examples.into()
            }

            fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
                host::$host(*self, p, views);
            }

            fn samples(&self) -> Vec<Self::Params> {
                SAMPLES.map(Self::launch).into()
            }

            fn typical(&self, batch: Batch) -> Self::Params {
                Self::launch(typical(batch))
            }
        }

        impl $kernel {
            fn launch((tokens, count, seq_len, key_heads, value_heads): (u32, u32, u32, u32, u32)) -> $params {
                let $p = $params { tokens, count, seq_len, key_heads, value_heads, ..Default::default() };
                $params { $($field: $value,)* ..$p }
            }
        }
    };
}

const DTYPES: [Dtype; 2] = [Dtype::Bf16, Dtype::F32];

operation!(DeltaRuleSolve(delta_rule_solve_params), solve, DTYPES.map(|x| Self { x }),
    |p| { gate_columns: 2 * p.value_heads + 8, b_column: 8 });
operation!(DeltaRuleFwd(delta_rule_fwd_params), fwd, DTYPES.map(|x| Self { keep: x == Dtype::Bf16, x }), |p| {});
operation!(DeltaRuleStateBwd(delta_rule_state_bwd_params), state_bwd, DTYPES.map(|x| Self { x }), |p| {});
operation!(DeltaRuleBwd(delta_rule_bwd_params), bwd, DTYPES.map(|x| Self { x }),
    |p| { gate_columns: 2 * p.value_heads + 8, b_column: 8, chunks: chunks(p.tokens, p.count) });
