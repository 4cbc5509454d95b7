//! Lowers what mixes the tokens of a layer between its first two GEMMs, forward and backward: attention, or the gated
//! delta rule.

use precast_core::plan::Tensor;

use crate::cache::{DeltaRuleCache, KeyValueCache, LayerCache};
use crate::config::{LayerConfig, ModelConfig};
use crate::ops::{Attended, DeltaRuleHeads, DeltaRuleSaved, ForwardPass, Heads, Ops};
use crate::rope::Rope;
use crate::weights::{DeltaRuleWeights, Layer, Norm};

/// An operator that mixes the tokens of a layer.
#[derive(Clone, Copy)]
pub(crate) enum Mixer<'a> {
    Attention(Attention<'a>),
    DeltaRule {
        heads: DeltaRuleHeads,
        weights: &'a DeltaRuleWeights,
        /// States of the layer's sequences, where it decodes.
        cache: Option<DeltaRuleCache>,
    },
}

#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub heads: Heads,
    /// Tables that rotate its heads, if anything does, and the elements of a head that they rotate.
    rope: Option<(Rope, u32)>,
    /// Norm of queries and keys, if any.
    norm: Option<&'a Norm>,
    /// True if the first GEMM computes a gate of each query head's output too.
    is_gated: bool,
    /// Keys and values of the layer's sequences, where it decodes.
    cache: Option<KeyValueCache>,
}

/// Tensors that the gradient needs besides the first GEMM's output.
pub(crate) enum Saved {
    Attention {
        /// Rotated queries and keys, normalized before if the family does that, and values.
        qkv: Tensor,
        /// Queries and keys before the norm, if they are normalized in place and trained.
        raw: Option<Tensor>,
        attended: Attended,
    },
    DeltaRule(DeltaRuleSaved),
    /// Of rows in slots, which have no gradient.
    Nothing,
}

impl<'a> Mixer<'a> {
    pub fn of(
        config: &ModelConfig,
        layer: &LayerConfig,
        weights: &'a Layer,
        (ropes, cache): (&[Rope], Option<LayerCache>),
    ) -> Self {
        match config.heads_of(layer).zip(weights.delta_rule.as_ref()) {
            Some((heads, weights)) => {
                Self::DeltaRule { heads: DeltaRuleHeads::of(heads), weights, cache: cache.map(LayerCache::delta_rule) }
            }
            None => Self::Attention(Attention {
                heads: Heads::of(config, layer),
                rope: layer.rope.map(|index| (ropes[index], config.rotary)),
                norm: weights.qk_norm.as_ref(),
                is_gated: config.projected_width() > config.qkv_width(),
                cache: cache.map(LayerCache::attention),
            }),
        }
    }

    /// Returns it with other weights of the layer.
    pub fn with<'b>(&self, weights: &'b Layer) -> Mixer<'b> {
        match *self {
            Self::Attention(attention) => {
                let Attention { heads, rope, is_gated, cache, .. } = attention;
                Mixer::Attention(Attention { heads, rope, norm: weights.qk_norm.as_ref(), is_gated, cache })
            }
            Self::DeltaRule { heads, cache, .. } => {
                let weights = weights.delta_rule.as_ref().expect("a layer of the same kind");
                Mixer::DeltaRule { heads, weights, cache }
            }
        }
    }

    /// Names of the GEMMs in front and behind.
    pub fn names(&self) -> [&'static str; 2] {
        match self {
            Self::Attention(_) => ["qkv", "o"],
            Self::DeltaRule { .. } => ["in_proj", "out_proj"],
        }
    }

    /// Lowers the rows that the GEMM behind reads, of those of the GEMM in front.
    pub fn forward(&self, ops: &mut Ops<'_>, projected: Tensor, pass: ForwardPass) -> (Tensor, Saved) {
        match self {
            Self::Attention(attention) => attention.forward(ops, projected, pass),
            Self::DeltaRule { heads, weights, cache: Some(cache) } => {
                (ops.delta_rule_decode("delta_rule", projected, (*heads, weights), *cache), Saved::Nothing)
            }
            Self::DeltaRule { heads, weights, cache: None } => {
                let (y, saved) = ops.delta_rule("delta_rule", projected, (*heads, weights), pass);
                (y, Saved::DeltaRule(saved))
            }
        }
    }

    /// Lowers the gradient of `projected`.
    pub fn backward(&self, ops: &mut Ops<'_>, dy: Tensor, projected: Tensor, saved: Saved) -> Tensor {
        match (self, saved) {
            (Self::Attention(attention), Saved::Attention { qkv, raw, attended }) => {
                attention.backward(ops, dy, projected, (qkv, raw, attended))
            }
            (Self::DeltaRule { heads, weights, .. }, Saved::DeltaRule(saved)) => {
                ops.delta_rule_backward("delta_rule", dy, projected, (*heads, weights), saved)
            }
            _ => panic!("a mixer's gradient is of what it has saved"),
        }
    }

    /// Lowers what the caches of sequences follow from.
    pub fn fill_cache(&self, ops: &mut Ops<'_>, projected: Tensor) {
        match *self {
            Self::Attention(attention) => {
                if let Some(cache) = attention.cache {
                    attention.store(ops, projected, cache);
                }
            }
            Self::DeltaRule { heads, weights, cache } => {
                if let Some(cache) = cache {
                    ops.delta_rule_decode("delta_rule", projected, (heads, weights), cache);
                }
            }
        }
    }
}

impl Attention<'_> {
    /// Rotates queries and keys; returns them with values as attention reads them. If the family normalizes them before
    /// and a backward pass follows, returns them unmodified too.
    fn turned(&self, ops: &mut Ops<'_>, projected: Tensor, pass: ForwardPass) -> (Tensor, Option<Tensor>) {
        let Self { heads, norm, .. } = *self;
        let Some((rope, rotary)) = self.rope else { return (projected, None) };
        match norm {
            Some(norm) if self.is_gated => (ops.qk_norm_gated("qk_norm", projected, (heads, rotary), rope, norm), None),
            Some(norm) => (projected, ops.qk_norm_rope("qk_norm", projected, heads, rope, norm, pass)),
            None => {
                ops.rope("rope", projected, heads, rope);
                (projected, None)
            }
        }
    }

    /// Stores keys and values of rows; returns their queries as attention reads them.
    fn store(&self, ops: &mut Ops<'_>, projected: Tensor, cache: KeyValueCache) -> Tensor {
        if let (Some((rope, _)), None) = (self.rope, self.norm) {
            ops.rope_store("rope", projected, self.heads, rope, cache);
            return projected;
        }
        let (qkv, _) = self.turned(ops, projected, ForwardPass::Alone);
        ops.store("store", qkv, self.heads, cache);
        qkv
    }

    fn forward(&self, ops: &mut Ops<'_>, projected: Tensor, pass: ForwardPass) -> (Tensor, Saved) {
        let (qkv, raw, attended) = match self.cache {
            None => {
                let (qkv, raw) = self.turned(ops, projected, pass);
                (qkv, raw, ops.attention("attention", qkv, self.heads))
            }
            Some(cache) => {
                let qkv = self.store(ops, projected, cache);
                (qkv, None, ops.attention_decode("attention", qkv, self.heads, cache))
            }
        };
        let o = attended.o;
        let y = if self.is_gated { ops.output_gate("output_gate", o, projected, self.heads) } else { o };
        (y, Saved::Attention { qkv, raw, attended })
    }

    fn backward(
        &self,
        ops: &mut Ops<'_>,
        dy: Tensor,
        projected: Tensor,
        (qkv, raw, attended): (Tensor, Option<Tensor>, Attended),
    ) -> Tensor {
        let Self { heads, norm, .. } = *self;
        if self.is_gated {
            let (rope, rotary) = self.rope.expect("gated queries are rotated");
            let norm = norm.expect("gated queries are normalized");
            let (d_o, dprojected) = ops.output_gate_backward("output_gate", dy, (attended.o, projected), heads);
            let dqkv = ops.attention_backward("attention", d_o, qkv, attended, heads);
            let gradients = (dqkv, dprojected);
            ops.qk_norm_gated_backward("qk_norm", gradients, projected, (heads, rotary), rope, norm);
            return dprojected;
        }
        let dqkv = ops.attention_backward("attention", dy, qkv, attended, heads);
        match (self.rope, norm.zip(raw)) {
            (Some((rope, _)), Some((norm, raw))) => {
                ops.qk_norm_rope_backward("qk_norm", dqkv, raw, heads, rope, norm);
            }
            (Some((rope, _)), None) => ops.rope_backward("attention.rope", dqkv, heads, rope),
            (None, _) => {}
        }
        dqkv
    }
}
