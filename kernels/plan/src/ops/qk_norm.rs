//! RMSNorm of each head of q and k, and their rotary embedding behind it, in place.

use precast_kernels::abi::{qk_norm_bwd_params, qk_norm_dgrad_params, qk_norm_fwd_params};
use precast_kernels::qk_norm::{QkNormBwd, QkNormDgrad, QkNormFwd};

use super::{GROUP, Heads, Ops};
use crate::buffer::Tensor;
use crate::rope::Rope;
use crate::weights::Norm;

impl Ops<'_> {
    /// Normalizes and turns the queries and keys of packed q, k and v. With `keep`, returns what they were.
    pub fn qk_norm_rope(
        &mut self,
        name: &str,
        qkv: Tensor,
        heads: Heads,
        rope: Rope,
        norm: &Norm,
        keep: bool,
    ) -> Option<Tensor> {
        let raw = keep.then(|| self.rows(&format!("{name}.raw"), (heads.query + heads.key) * heads.head_dim));
        let params = qk_norm_fwd_params {
            x: qkv.address(),
            raw: raw.map_or(0, Tensor::address),
            gamma: norm.gamma.tensor.address(),
            cos: rope.cos.address(),
            sin: rope.sin.address(),
            eps: norm.eps,
            tokens: self.tokens(),
            seq_len: self.seq_len,
            query_heads: heads.query,
            key_heads: heads.key,
            row_heads: heads.query + 2 * heads.key,
        };
        self.launch(name, QkNormFwd { d: heads.head_dim, keep, x: self.x }, &params);
        raw
    }

    /// Turns the gradient of queries and keys into that of what they were; and gamma's gradient if that trains.
    pub fn qk_norm_rope_backward(
        &mut self,
        name: &str,
        dqkv: Tensor,
        raw: Tensor,
        heads: Heads,
        rope: Rope,
        norm: &Norm,
    ) {
        if norm.gamma.trained().is_none() {
            let params = qk_norm_dgrad_params {
                dx: dqkv.address(),
                raw: raw.address(),
                gamma: norm.gamma.tensor.address(),
                cos: rope.cos.address(),
                sin: rope.sin.address(),
                eps: norm.eps,
                tokens: self.tokens(),
                seq_len: self.seq_len,
                query_heads: heads.query,
                key_heads: heads.key,
                row_heads: heads.query + 2 * heads.key,
            };
            return self.launch(&format!("{name}.dgrad"), QkNormDgrad { d: heads.head_dim, x: self.x }, &params);
        }
        let (width, groups) = (2 * heads.head_dim, self.tokens().div_ceil(GROUP));
        let partial = self.statistics(&format!("{name}.dgamma_partial"), u64::from(groups) * u64::from(width));
        let params = qk_norm_bwd_params {
            dx: dqkv.address(),
            raw: raw.address(),
            gamma: norm.gamma.tensor.address(),
            cos: rope.cos.address(),
            sin: rope.sin.address(),
            dgamma_partial: partial.address(),
            eps: norm.eps,
            tokens: self.tokens(),
            seq_len: self.seq_len,
            query_heads: heads.query,
            key_heads: heads.key,
            row_heads: heads.query + 2 * heads.key,
            rows: GROUP,
            reserved: 0,
        };
        self.launch(&format!("{name}.bwd"), QkNormBwd { d: heads.head_dim, x: self.x }, &params);
        self.add_rows(&format!("{name}.dgamma"), partial, width, &norm.gamma);
    }
}
