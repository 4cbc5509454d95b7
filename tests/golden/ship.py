#!/usr/bin/env python3
"""Steps of students that train for a file in blocks: PyTorch's of a golden case, with quantization as a straight-through function.

    tests/golden/ship.py CASE...       # ship/q8_0.jsonl and ship/q4_0.jsonl of each case of make.py

The forward and the backward pass have matrices as blocks hold them, and AdamW updates the weights that these are made of.
Embedding and head are Q8_0: rows of golden cases are no whole blocks of 256. Scales are those of kernels/src/fake_quant/mod.rs,
in float32, operation by operation; all else is in the case's dtype. Masters that differ in a last bit may be rounded to
other numbers all the same.
"""

import pathlib
import sys
import tempfile

import numpy as np
import torch

import make

F32 = np.float32


def inverse(x):
    return np.where(x == 0, F32(0), F32(1) / np.where(x == 0, F32(1), x)).astype(F32)


def q8_0(x):
    scale = np.abs(x).max(1) / F32(127)
    scaled = x * inverse(scale)[:, None]
    return np.sign(scaled) * np.floor(np.abs(scaled) + F32(0.5)) * scale.astype(np.float16).astype(F32)[:, None]


def q4_0(x):
    numbers = lambda factor: np.rint(np.clip(x * factor[:, None], F32(-8), F32(7)))
    extreme = x[np.arange(len(x)), np.abs(x).argmax(1)]
    best_xq, best_qq = np.zeros(len(x), F32), np.ones(len(x), F32)
    for candidate in range(-7, 8):
        q = numbers(F32(-8 + candidate / 8) * inverse(extreme))
        xq, qq = np.zeros(len(x), F32), np.zeros(len(x), F32)
        for i in range(32):
            xq, qq = xq + x[:, i] * q[:, i], qq + q[:, i] * q[:, i]
        better = xq * xq * best_qq > best_xq * best_xq * qq
        best_xq, best_qq = np.where(better, xq, best_xq), np.where(better, qq, best_qq)
    scale = (best_xq / best_qq).astype(np.float16).astype(F32)
    return numbers(inverse(scale)) * scale[:, None]


def rounded(name, parameter, of_layers):
    if parameter.dim() != 2:
        return parameter.data
    blocks = q8_0 if "embed_tokens" in name or "lm_head" in name else of_layers
    values = blocks(parameter.data.numpy().astype(F32).reshape(-1, 32))
    return torch.from_numpy(values.astype(F32).reshape(parameter.shape)).to(parameter.dtype)


def train(case, of_layers, out):
    """Trains as make.py does; the student's parameters hold blocks' values from the first forward pass of a step to its update."""
    masters, model_of, step = {}, make.model_of, torch.optim.AdamW.step

    def student_in_blocks(directory, *arguments):
        model = model_of(directory, *arguments)

        def quantize(*_):
            if not masters:
                for name, parameter in model.named_parameters():
                    masters[parameter] = parameter.data
                    parameter.data = rounded(name, parameter, of_layers)

        if directory.name == "student":
            model.register_forward_pre_hook(quantize)
        return model

    def update(optimizer, *arguments, **named):
        for parameter, data in masters.items():
            parameter.data = data
        masters.clear()
        return step(optimizer, *arguments, **named)

    make.model_of, torch.optim.AdamW.step = student_in_blocks, update
    try:
        make.train(case, out)
    finally:
        make.model_of, torch.optim.AdamW.step = model_of, step


def main():
    make.exact()
    for case in map(pathlib.Path, sys.argv[1:]):
        (case / "ship").mkdir(exist_ok=True)
        for of_layers in (q8_0, q4_0):
            with tempfile.TemporaryDirectory() as directory:
                train(case, of_layers, pathlib.Path(directory))
                (pathlib.Path(directory) / "trajectory.jsonl").rename(case / "ship" / f"{of_layers.__name__}.jsonl")


if __name__ == "__main__":
    main()
