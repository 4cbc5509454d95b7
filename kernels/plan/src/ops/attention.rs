//! Causal grouped-query attention over packed q, k and v.

use precast_kernels::abi::{AttentionBwdArgs, AttentionDeltaArgs, AttentionFwdArgs};
use precast_kernels::attention::{AttentionBwd, AttentionDelta, AttentionFwd};

use super::Ops;
use crate::config::{LayerConfig, ModelConfig};
use precast_core::plan::Tensor;

#[derive(Clone, Copy)]
pub(crate) struct Heads {
    pub query: u32,
    /// Key and value heads.
    pub key: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Factor of the scores.
    pub scale: f32,
    /// Keys that a query sees at most, its own among them.
    pub window: Option<u32>,
}

impl Heads {
    pub fn of(config: &ModelConfig, layer: &LayerConfig) -> Self {
        let ModelConfig { heads: query, kv_heads: key, head_dim, score_scale: scale, .. } = *config;
        Self { query, key, head_dim, scale, window: layer.window }
    }

    pub fn qkv_width(self) -> u32 {
        (self.query + 2 * self.key) * self.head_dim
    }
}

/// Result of attention: the output of every query head, and the log-sum-exp of its scores, which its gradient needs.
#[derive(Clone, Copy)]
pub(crate) struct Attended {
    pub o: Tensor,
    /// None of decoding, which has no gradient.
    pub lse: Option<Tensor>,
}

impl Ops<'_> {
    /// Lowers attention over rotated queries and keys.
    pub fn attention(&mut self, name: &str, qkv: Tensor, heads: Heads) -> Attended {
        let o = self.rows(name, heads.query * heads.head_dim);
        let lse = self.statistics("lse", u64::from(self.tokens) * u64::from(heads.query));
        let sequences = self.sequences();
        let args = AttentionFwdArgs {
            qkv,
            sequences: sequences.list,
            o,
            lse,
            tokens: self.tokens,
            count: sequences.count(),
            seq_len: sequences.seq_len,
            heads: heads.query,
            kv_heads: heads.key,
            scale: heads.scale,
        };
        self.launch(name, AttentionFwd { d: heads.head_dim, window: heads.window, x: self.x }, args);
        Attended { o, lse: Some(lse) }
    }

    /// Lowers the gradient of the rotated queries, the rotated keys and the values.
    pub fn attention_backward(
        &mut self,
        name: &str,
        d_o: Tensor,
        qkv: Tensor,
        attended: Attended,
        heads: Heads,
    ) -> Tensor {
        let lse = attended.lse.expect("a forward pass that keeps what its gradient needs");
        let delta_name = format!("{name}.delta");
        let delta = self.statistics(&delta_name, lse.elems);
        let args = AttentionDeltaArgs { o: attended.o, d_o, delta, tokens: self.tokens, heads: heads.query };
        self.launch(&delta_name, AttentionDelta { d: heads.head_dim, x: self.x }, args);
        let dqkv = self.rows(&format!("{name}.dqkv"), heads.qkv_width());
        let sequences = self.sequences();
        let args = AttentionBwdArgs {
            qkv,
            sequences: sequences.list,
            d_o,
            lse,
            delta,
            dqkv,
            tokens: self.tokens,
            count: sequences.count(),
            seq_len: sequences.seq_len,
            heads: heads.query,
            kv_heads: heads.key,
            scale: heads.scale,
        };
        let key = AttentionBwd { d: heads.head_dim, window: heads.window, x: self.x };
        self.launch(&format!("{name}.bwd"), key, args);
        dqkv
    }
}
