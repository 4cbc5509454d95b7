"""Has transformers compute Qwen3.5's layers by the Triton kernels of flash-linear-attention: import it before the model is made.

fla refuses its kernels of the gradients on Hopper under Triton 3.4 to 3.7.0, where they are wrong. They are as fast as right ones: for
times alone it is told that the version is newer.
"""

import fla.ops.common.chunk_o
import torch
import transformers.models.qwen3_5.modeling_qwen3_5 as qwen35
from fla.modules.conv import causal_conv1d
from fla.ops.gated_delta_rule import chunk_gated_delta_rule

fla.ops.common.chunk_o.TRITON_ABOVE_3_7_1 = True


@torch.compiler.disable
def rule(query, key, value, g, beta, use_qk_l2norm_in_kernel=False, **_):
    return chunk_gated_delta_rule(query, key, value, g=g, beta=beta, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel)


@torch.compiler.disable
def convolution(x, weight, bias=None, activation=None, **_):
    rows = x.transpose(1, 2).contiguous()
    return causal_conv1d(rows, weight=weight, bias=bias, activation=activation)[0].transpose(1, 2)


qwen35.torch_chunk_gated_delta_rule = rule
qwen35.causal_conv1d_fn = convolution
