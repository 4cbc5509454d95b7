#!/usr/bin/env python3
"""GEMMs of experts in torch: 128 experts of 512 rows each, at the shapes of Qwen3-30B-A3B, beside the dense GEMM of as
many rows. Each is repeated first, for the seconds of the argument, 1 by default."""

import statistics
import sys
import time

import torch

ROWS, EXPERTS = 65536, 128
HEATED_S = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0


def milliseconds(call, calls=20, samples=5):
    for _ in range(3):
        call()
    # As within a step: a GPU that has just begun is below its power limit, and faster.
    begin = time.monotonic()
    while time.monotonic() - begin < HEATED_S:
        call()
        torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(samples):
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end) / calls)
    return statistics.median(taken)


def main():
    for n, k in ((1536, 2048), (2048, 768)):
        x = torch.randn(ROWS, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(EXPERTS, n, k, device="cuda", dtype=torch.bfloat16)
        ends = torch.arange(1, EXPERTS + 1, device="cuda", dtype=torch.int32) * (ROWS // EXPERTS)
        taken = dict(grouped=milliseconds(lambda: torch._grouped_mm(x, w.transpose(1, 2), ends)), dense=milliseconds(lambda: x @ w[0].t()))
        print(n, k, *(f"{name} {2 * ROWS * n * k / ms / 1e9:.0f} TFLOP/s" for name, ms in taken.items()))


main()
