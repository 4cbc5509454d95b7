#!/usr/bin/env python3
"""Compares a run's event file, as TensorBoard reads it, with its metrics.jsonl: `cargo xtask peers tensorboard`, or check.py RUN."""
import json, math, pathlib, sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

run = pathlib.Path(sys.argv[1])
events = EventAccumulator(str(run / "events.out.tfevents.precast"), size_guidance={"tensors": 0, "scalars": 0})
events.Reload()
lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
tags = {"train/loss": "loss", "train/kd_loss": "kd_loss", "train/ce_loss": "ce_loss", "train/grad_norm": "grad_norm", "train/lr": "lr",
        "speed/tokens_per_s": "tokens_per_s", "speed/row_tokens_per_s": "row_tokens_per_s",
        "speed/padding_share": "padding_share", "speed/step_ms": "step_ms", "gpu/power_w": "power_w",
        "gpu/sm_clock_mhz": "sm_clock_mhz", "gpu/temperature_c": "temperature_c", "gpu/busy_percent": "gpu_busy_percent",
        "eval/loss": "eval_loss", "eval/kd_loss": "eval_kd_loss",
        "eval/ce_loss": "eval_ce_loss"}
compared = 0
for tag, name in tags.items():
    expected = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
    if tag in events.Tags()["tensors"]:
        found = [(event.step, float(tensor_util.make_ndarray(event.tensor_proto))) for event in events.Tensors(tag)]
    else:
        found = [(event.step, event.value) for event in events.Scalars(tag)] if tag in events.Tags()["scalars"] else []
    assert [step for step, _ in found] == [step for step, _ in expected], (tag, len(found), len(expected))
    assert all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-37) for (_, a), (_, b) in zip(found, expected)), tag
    compared += len(found)
assert compared, "nothing was compared"
print(f"{compared} values of {len(lines)} steps are as metrics.jsonl has them")
