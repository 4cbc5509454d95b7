"""The gated delta rule token by token, in the dtype of what it is given: transformers computes it by chunks, in float32."""

import torch
import transformers.models.qwen3_5.modeling_qwen3_5 as qwen35
import transformers.models.qwen3_5_moe.modeling_qwen3_5_moe as moe


def rule(query, key, value, g, beta, **_):
    """Queries, keys and values [batch, tokens, heads, 128]; g and beta [batch, tokens, heads]."""
    normalized = lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
    query, key = normalized(query) * query.size(-1) ** -0.5, normalized(key)
    state = value.new_zeros(*value.shape[:1], value.size(2), key.size(-1), value.size(-1))
    out = []
    for q, k, v, g, beta in zip(*(x.unbind(1) for x in (query, key, value, g, beta))):
        state = state * g.to(state.dtype).exp()[..., None, None]
        read = (state * k[..., None]).sum(-2)
        state = state + k[..., None] * (beta[..., None] * (v - read))[..., None, :]
        out.append((state * q[..., None]).sum(-2))
    return torch.stack(out, 1), None


def gated(self, x, gate):
    """The norm of a head and its gate."""
    normalized = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
    return self.weight * normalized * torch.nn.functional.silu(gate)


for module, norm in ((qwen35, qwen35.Qwen3_5RMSNormGated), (moe, moe.Qwen3_5MoeRMSNormGated)):
    module.torch_chunk_gated_delta_rule = rule
    norm.forward = gated
