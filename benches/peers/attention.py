#!/usr/bin/env python3
"""Causal scaled dot product attention in torch, by each backend that takes the shape: seconds and TFLOP/s.

    attention.py [HEAD_DIM 256] [HEADS 16] [KV_HEADS 4] [BATCH 8] [SEQ 1024] [WINDOW 0]

As `precast bench kernels attention.` has it, whose launches of head_dim 256 have these heads. With a window the
backend is FlexAttention, compiled with a mask of blocks.
"""
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HEAD_DIM, HEADS, KV_HEADS, BATCH, SEQ, WINDOW = [
    int(given) for given in sys.argv[1:] + "256 16 4 8 1024 0".split()[len(sys.argv) - 1 :]
]


def random(heads):
    return torch.randn(BATCH, heads, SEQ, HEAD_DIM, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def seconds(work, warm=5, times=25):
    for _ in range(warm):
        work()
    spans = []
    for _ in range(times):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        spans.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in spans) / 1e3


def report(name, forward):
    q, k, v = random(HEADS), random(KV_HEADS), random(KV_HEADS)
    seen = SEQ if not 0 < WINDOW < SEQ else WINDOW
    flops = 4 * HEAD_DIM * BATCH * HEADS * (SEQ * seen - seen * (seen - 1) / 2)
    line = dict(backend=name, d=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS, batch=BATCH, seq=SEQ, window=WINDOW or None)
    try:
        out = forward(q, k, v)
        grad = torch.randn_like(out)
        fwd = seconds(lambda: forward(q, k, v))
        line |= dict(fwd_us=fwd * 1e6, fwd_tflops=flops / fwd / 1e12)
        bwd = seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
        line |= dict(bwd_us=bwd * 1e6, bwd_tflops=2.5 * flops / bwd / 1e12)
    except RuntimeError as error:
        line |= dict(error=str(error).splitlines()[0])
    print(json.dumps(line | dict(device=torch.cuda.get_device_name(), torch=torch.__version__)), flush=True)


if WINDOW:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(
        lambda b, h, query, key: (key <= query) & (query - key < WINDOW), None, None, SEQ, SEQ, device="cuda"
    )
    flex = torch.compile(flex_attention)
    report("flex", lambda q, k, v: flex(q, k, v, block_mask=mask, enable_gqa=HEADS != KV_HEADS))
else:
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        with sdpa_kernel(backend):
            report(
                backend.name.removesuffix("_ATTENTION").lower(),
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=HEADS != KV_HEADS),
            )
