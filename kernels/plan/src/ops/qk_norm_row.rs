//! RMSNorm of all heads of q together, and of those of k, followed by their rotary embedding, in place.

use precast_kernels::abi::{QkNormRowBwdArgs, QkNormRowDgradArgs, QkNormRowFwdArgs};
use precast_kernels::qk_norm::row::{QkNormRowBwd, QkNormRowDgrad, QkNormRowFwd};

use super::adding::{GROUP, Ops};
use super::attention::Heads;
use crate::rope::Rope;
use crate::weights::Norm;
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Normalizes and rotates the queries and keys of packed q, k and v; writes them unmodified to `raw` if given.
    #[rustfmt::skip]
    pub(super) fn qk_norm_row_rope(
        &mut self,
        name: &str,
        (x, raw): (Tensor, Option<Tensor>),
        heads: Heads,
        Rope { cos, sin }: Rope,
        norm: &Norm,
    ) {
        let (position, seq_len) = self.positions();
        let args = QkNormRowFwdArgs {
            x, raw, gamma: norm.gamma.tensor, position, cos, sin, eps: norm.eps, tokens: self.tokens, seq_len,
            key_heads: heads.key, row_heads: heads.query + 2 * heads.key,
        };
        let (d, gamma, heads, keep) = (heads.head_dim, norm.gamma_form, heads.query, raw.is_some());
        self.launch(name, QkNormRowFwd { d, gamma, heads, keep, x: self.x }, args);
    }

    /// Replaces the gradient of queries and keys by that of their unmodified values; also lowers gamma's gradient if it
    /// trains.
    #[rustfmt::skip]
    pub(super) fn qk_norm_row_rope_backward(
        &mut self,
        name: &str,
        (dx, raw): (Tensor, Tensor),
        heads: Heads,
        Rope { cos, sin }: Rope,
        norm: &Norm,
    ) {
        let ((position, seq_len), tokens, eps) = (self.positions(), self.tokens, norm.eps);
        let (weight, form, x) = (norm.gamma.tensor, norm.gamma_form, self.x);
        let (d, key_heads, row_heads) = (heads.head_dim, heads.key, heads.query + 2 * heads.key);
        if norm.gamma.trained().is_none() {
            let args = QkNormRowDgradArgs {
                dx, raw, gamma: weight, position, cos, sin, eps, tokens, seq_len, key_heads, row_heads,
            };
            let key = QkNormRowDgrad { d, gamma: form, heads: heads.query, x };
            return self.launch(&format!("{name}.dgrad"), key, args);
        }
        let (width, groups) = ((heads.query + heads.key) * d, tokens.div_ceil(GROUP));
        let partial = self.statistics(&format!("{name}.dgamma_partial"), u64::from(groups) * u64::from(width));
        let args = QkNormRowBwdArgs {
            dx, raw, gamma: weight, position, cos, sin, dgamma_partial: partial, eps, tokens, seq_len, key_heads,
            row_heads, rows: GROUP,
        };
        self.launch(&format!("{name}.bwd"), QkNormRowBwd { d, gamma: form, heads: heads.query, x }, args);
        self.add_rows(&format!("{name}.dgamma"), partial, width, &norm.gamma);
    }
}
