//! RMSNorm of each head of q and k, followed by their rotary embedding, in place.

use precast_kernels::abi::{QkNormBwdArgs, QkNormDgradArgs, QkNormFwdArgs};
use precast_kernels::qk_norm::{QkNormBwd, QkNormDgrad, QkNormFwd};

use super::adding::{ForwardPass, GROUP, Ops};
use super::attention::Heads;
use crate::rope::Rope;
use crate::weights::Norm;
use precast_core::plan::Tensor;

/// True if gammas have an element for each of all heads, which are normalized together. With one head of each it is
/// the same.
fn is_of_rows(norm: &Norm, heads: Heads) -> bool {
    norm.gamma.tensor.elems != 2 * u64::from(heads.head_dim)
}

impl Ops<'_> {
    /// Normalizes and rotates the queries and keys of packed q, k and v; returns them unmodified if a backward pass
    /// follows.
    pub fn qk_norm_rope(
        &mut self,
        name: &str,
        qkv: Tensor,
        heads: Heads,
        rope: Rope,
        norm: &Norm,
        pass: ForwardPass,
    ) -> Option<Tensor> {
        let (keep, (position, seq_len)) = (pass == ForwardPass::Saving, self.positions());
        let raw = keep.then(|| self.rows(&format!("{name}.raw"), (heads.query + heads.key) * heads.head_dim));
        if is_of_rows(norm, heads) {
            self.qk_norm_row_rope(name, (qkv, raw), heads, rope, norm);
            return raw;
        }
        let args = QkNormFwdArgs {
            x: qkv,
            raw,
            gamma: norm.gamma.tensor,
            position,
            cos: rope.cos,
            sin: rope.sin,
            eps: norm.eps,
            tokens: self.tokens,
            seq_len,
            query_heads: heads.query,
            key_heads: heads.key,
            row_heads: heads.query + 2 * heads.key,
        };
        self.launch(name, QkNormFwd { d: heads.head_dim, gamma: norm.gamma_form, keep, x: self.x }, args);
        raw
    }

    /// Replaces the gradient of queries and keys by that of their unmodified values; also lowers gamma's gradient if it
    /// trains.
    pub fn qk_norm_rope_backward(
        &mut self,
        name: &str,
        dqkv: Tensor,
        raw: Tensor,
        heads: Heads,
        rope: Rope,
        norm: &Norm,
    ) {
        if is_of_rows(norm, heads) {
            return self.qk_norm_row_rope_backward(name, (dqkv, raw), heads, rope, norm);
        }
        let (position, seq_len) = self.positions();
        if norm.gamma.trained().is_none() {
            let args = QkNormDgradArgs {
                dx: dqkv,
                raw,
                gamma: norm.gamma.tensor,
                position,
                cos: rope.cos,
                sin: rope.sin,
                eps: norm.eps,
                tokens: self.tokens,
                seq_len,
                query_heads: heads.query,
                key_heads: heads.key,
                row_heads: heads.query + 2 * heads.key,
            };
            return self.launch(
                &format!("{name}.dgrad"),
                QkNormDgrad { d: heads.head_dim, gamma: norm.gamma_form, x: self.x },
                args,
            );
        }
        let (width, groups) = (2 * heads.head_dim, self.tokens.div_ceil(GROUP));
        let partial = self.statistics(&format!("{name}.dgamma_partial"), u64::from(groups) * u64::from(width));
        let args = QkNormBwdArgs {
            dx: dqkv,
            raw,
            gamma: norm.gamma.tensor,
            position,
            cos: rope.cos,
            sin: rope.sin,
            dgamma_partial: partial,
            eps: norm.eps,
            tokens: self.tokens,
            seq_len,
            query_heads: heads.query,
            key_heads: heads.key,
            row_heads: heads.query + 2 * heads.key,
            rows: GROUP,
        };
        self.launch(&format!("{name}.bwd"), QkNormBwd { d: heads.head_dim, gamma: norm.gamma_form, x: self.x }, args);
        self.add_rows(&format!("{name}.dgamma"), partial, width, &norm.gamma);
    }
}
