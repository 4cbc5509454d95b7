//! RMSNorm of each head of q and k and their rotary embedding, out of rows with gates, and the gates of the output.

use precast_kernels::abi::{
    OutputGateBwdArgs, OutputGateFwdArgs, QkNormGatedBwdArgs, QkNormGatedDgradArgs, QkNormGatedFwdArgs,
};
use precast_kernels::output_gate::{OutputGateBwd, OutputGateFwd};
use precast_kernels::qk_norm::gated::{QkNormGatedBwd, QkNormGatedDgrad, QkNormGatedFwd};

use super::adding::{GROUP, Ops};
use super::attention::Heads;
use crate::rope::Rope;
use crate::weights::Norm;
use precast_core::plan::Tensor;

/// Heads of a row with gates.
fn row_heads(heads: Heads) -> u32 {
    2 * (heads.query + heads.key)
}

impl Ops<'_> {
    /// Takes queries, keys and values out of rows with gates; normalizes queries and keys, and rotates their first
    /// `rotary` elements.
    pub fn qk_norm_gated(
        &mut self,
        name: &str,
        packed: Tensor,
        (heads, rotary): (Heads, u32),
        rope: Rope,
        norm: &Norm,
    ) -> Tensor {
        let (position, seq_len) = self.positions();
        let qkv = self.rows(name, heads.qkv_width());
        let args = QkNormGatedFwdArgs {
            packed,
            gamma: norm.gamma.tensor,
            position,
            cos: rope.cos,
            sin: rope.sin,
            qkv,
            eps: norm.eps,
            tokens: self.tokens,
            seq_len,
            query_heads: heads.query,
            key_heads: heads.key,
        };
        self.launch(name, QkNormGatedFwd { d: heads.head_dim, gamma: norm.gamma_form, rotary, x: self.x }, args);
        qkv
    }

    /// Lowers the gradient of queries, keys and values as they were, into rows with gates; also gamma's if it trains.
    pub fn qk_norm_gated_backward(
        &mut self,
        name: &str,
        (dqkv, dpacked): (Tensor, Tensor),
        packed: Tensor,
        (heads, rotary): (Heads, u32),
        rope: Rope,
        norm: &Norm,
    ) {
        let (position, seq_len) = self.positions();
        let (d, gamma, x) = (heads.head_dim, norm.gamma_form, self.x);
        let Rope { cos, sin } = rope;
        let (eps, tokens, query_heads, key_heads) = (norm.eps, self.tokens, heads.query, heads.key);
        if norm.gamma.trained().is_none() {
            #[rustfmt::skip]
            let args = QkNormGatedDgradArgs {
                packed, gamma: norm.gamma.tensor, position, cos, sin, dqkv, dpacked, eps, tokens, seq_len, query_heads,
                key_heads,
            };
            return self.launch(&format!("{name}.dgrad"), QkNormGatedDgrad { d, gamma, rotary, x }, args);
        }
        let (width, groups) = (2 * d, tokens.div_ceil(GROUP));
        let partial = self.statistics(&format!("{name}.dgamma_partial"), u64::from(groups) * u64::from(width));
        #[rustfmt::skip]
        let args = QkNormGatedBwdArgs {
            packed, gamma: norm.gamma.tensor, position, cos, sin, dqkv, dpacked, dgamma_partial: partial, eps, tokens,
            seq_len, query_heads, key_heads, rows: GROUP,
        };
        self.launch(&format!("{name}.bwd"), QkNormGatedBwd { d, gamma, rotary, x }, args);
        self.add_rows(&format!("{name}.dgamma"), partial, width, &norm.gamma);
    }

    /// Multiplies the output of each head by its gate's sigmoid.
    pub fn output_gate(&mut self, name: &str, o: Tensor, packed: Tensor, heads: Heads) -> Tensor {
        let y = self.rows(name, heads.query * heads.head_dim);
        let (tokens, row_heads) = (self.tokens, row_heads(heads));
        let args = OutputGateFwdArgs { o, packed, y, tokens, heads: heads.query, row_heads };
        self.launch(name, OutputGateFwd { d: heads.head_dim, x: self.x }, args);
        y
    }

    /// Lowers the gradients of outputs, and of gates in rows that [`Self::qk_norm_gated_backward`] completes.
    pub fn output_gate_backward(
        &mut self,
        name: &str,
        dy: Tensor,
        (o, packed): (Tensor, Tensor),
        heads: Heads,
    ) -> (Tensor, Tensor) {
        let (tokens, row_heads) = (self.tokens, row_heads(heads));
        let d_o = self.rows(&format!("{name}.d_o"), heads.query * heads.head_dim);
        let dpacked = self.rows(&format!("{name}.dpacked"), row_heads * heads.head_dim);
        let args = OutputGateBwdArgs { o, packed, dy, d_o, dpacked, tokens, heads: heads.query, row_heads };
        self.launch(&format!("{name}.bwd"), OutputGateBwd { d: heads.head_dim, x: self.x }, args);
        (d_o, dpacked)
    }
}
