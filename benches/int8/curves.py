#!/usr/bin/env python3
"""Curves of several runs in one drawing, as a run's report draws its own.

    benches/int8/curves.py OUT.svg TITLE NAME=RUN/metrics.jsonl...     # a mean of 20 steps; of runs that have it, eval_loss too
"""

import json
import pathlib
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, HEADING = 860, 260, 64, 10, 10, 24, 44
COLORS = ["#2f6fde", "#d9822b", "#2a9d5c", "#a04bc9", "#c0392b", "#6b7480"]
MEAN_OF = 20


def losses(path):
    """Steps and the mean of the losses up to each, and those held out."""
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    train = [(line["step"], line["loss"]) for line in lines if line["loss"] is not None]
    mean = [(train[i][0], sum(loss for _, loss in train[i - MEAN_OF + 1 : i + 1]) / MEAN_OF) for i in range(MEAN_OF - 1, len(train), MEAN_OF // 2)]
    return mean, [(line["step"], line["eval_loss"]) for line in lines if line.get("eval_loss") is not None]


def main():
    out, title, *runs = sys.argv[1:]
    series = []
    for name, path in (run.split("=", 1) for run in runs):
        train, held_out = losses(path)
        series += [(name, train)] + ([(f"{name}, held out", held_out)] if len(held_out) > 1 else [])
    points = [point for _, line in series for point in line]
    (x0, x1), (y0, y1) = ((min(p[i] for p in points), max(p[i] for p in points)) for i in (0, 1))
    x = lambda step: LEFT + (step - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
    y = lambda loss: HEIGHT - BOTTOM - (loss - y0) / (y1 - y0) * (HEIGHT - BOTTOM - TOP)
    drawing = ""
    for tick in range(5):
        loss, step = y0 + tick / 4 * (y1 - y0), x0 + tick / 4 * (x1 - x0)
        drawing += f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(loss):.1f}" y2="{y(loss):.1f}"/>'
        drawing += f'<text x="{LEFT - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}</text>'
        drawing += f'<text x="{x(step):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{step:.0f}</text>'
    legend = ""
    for (name, line), color in zip(series, COLORS * len(series)):
        path = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in line)
        drawing += f'<polyline fill="none" stroke="{color}" stroke-width="1.4" points="{path}"/>'
        legend += f'<tspan style="fill:{color}">■</tspan> {name}   '
    pathlib.Path(out).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {WIDTH + 16} {HEIGHT + HEADING}"><style>text {{ font: 11px system-ui, '
        f"sans-serif; fill: #8b9198; }} .title {{ font-size: 15px; fill: #57606a; }} .grid {{ stroke: #8b919855; }}</style>"
        f'<text x="0" y="18" class="title">{title}</text><text x="0" y="36">{legend}</text>'
        f'<g transform="translate(0 {HEADING})">{drawing}</g></svg>\n'
    )


if __name__ == "__main__":
    main()
