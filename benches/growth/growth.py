#!/usr/bin/env python3
"""What more kernels cost, a JSON object a line, and a picture: growth.py build|startup|plot DIR. See README.md."""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess

MODELS = ["smollm2-135m", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b"]
ARCHS = ["sm_90", "sm_89", "sm_121"]
# Models and architectures of each bundle.
BUNDLES = [(1, 1), (2, 1), (3, 1), (4, 1), (4, 2), (4, 3)]
COLORS = ["#2f6fde", "#d9822b", "#2a9d5c", "#a04bc9", "#c0392b"]
# Runs of each, of which the fastest counts: what else the machine does only adds.
RUNS = 2


def run(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def options(name, values):
    return [word for value in values for word in (name, value)]


def build(arguments):
    """Compiles every kernel of a bundle, without the cache."""
    for models, archs in BUNDLES:
        bundle = arguments.dir / f"{models}x{archs}.bundle"
        what = options("--model", MODELS[:models]) + options("--arch", ARCHS[:archs])
        printed = [run(arguments.precast_aot, "build", "--no-cache", *what, "--out", bundle) for _ in range(RUNS)]
        # "...: 90 sm_90a kernels for ..., 1981256 bytes, ...; compiled 90 in 12.3 s with ..."
        kernels = int(re.search(r"compiled (\d+) in", printed[0])[1])
        seconds = min(float(re.search(r"compiled \d+ in ([\d.]+) s", text)[1]) for text in printed)
        yield dict(what="build", bundle=bundle.name, models=models, archs=archs, kernels=kernels,
                   bundle_bytes=bundle.stat().st_size, seconds=seconds, cores=os.cpu_count())


def startup(arguments):
    """Starts the same run from each bundle."""
    run_options = ["--teacher", arguments.teacher, "--student", arguments.student, "--device", arguments.device]
    for built in read(arguments.dir / "build.jsonl"):
        command = [arguments.precast, "bench", "step", "--json", "--steps", "1", "--batch-size", "1", "--seq-len", "512"]
        records = [json.loads(run(*command, *run_options, "--bundle", arguments.dir / built["bundle"])) for _ in range(RUNS)]
        phases = [{phase["name"]: phase["seconds"] for phase in record["startup"]["phases"]} for record in records]
        yield dict(what="startup", bundle=built["bundle"], modules=built["kernels"], bundle_bytes=built["bundle_bytes"],
                   modules_loaded=records[0]["modules_loaded"], device=records[0]["device"]["name"],
                   verify_and_load_s=min(phase["verify and load"] for phase in phases))


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def panel(left, top, title, lines, position=lambda x: x):
    """One plot, 400 x 240: lines of a name and its (x, y), heights from 0."""
    places = [position(x) for _, points in lines for x, _ in points]
    first, last, most = min(places), max(places), max(y for _, points in lines for _, y in points)
    across = lambda x: left + 60 + 270 * (position(x) - first) / (last - first)
    down = lambda y: top + 200 - 160 * y / most
    drawing = [f'<text x="{left + 20}" y="{top + 20}" font-weight="bold">{title}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        drawing.append(f'<path d="M{left + 60} {down(share * most):.1f}h270" stroke="#dfe3e7"/>'
                       f'<text x="{left + 54}" y="{down(share * most) + 4:.1f}" text-anchor="end">{share * most:.3g}</text>')
    written = -math.inf
    for x in sorted({x for _, points in lines for x, _ in points}):
        if across(x) > written + 24:
            written = across(x)
            drawing.append(f'<text x="{written:.1f}" y="{top + 216}" text-anchor="middle">{x}</text>')
    for row, ((name, points), color) in enumerate(zip(lines, COLORS)):
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in points)
        drawing.append(f'<polyline fill="none" stroke="{color}" points="{path}"/>'
                       f'<text x="{left + 345}" y="{top + 60 + 16 * row}" fill="{color}">{name}</text>')
        drawing += [f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="2.5" fill="{color}"/>' for x, y in points]
    return "".join(drawing)


def plot(arguments):
    built, started = (read(arguments.dir / name) for name in ("build.jsonl", "startup.jsonl"))
    points = json.loads((arguments.dir / "bench.json").read_text())["sweep"]["points"]

    def by_seq_len(value):
        lengths = sorted({point["seq_len"] for point in points})
        return [(length, [(p["batch_size"], value(p)) for p in points if p["seq_len"] == length]) for length in lengths]

    print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 480" font-family="sans-serif" font-size="11" '
          'fill="#6b7480">' + "".join([
              '<rect width="800" height="480" fill="#fff"/>',
              panel(0, 0, "thousand tokens/s over batch size, by sequence length",
                    by_seq_len(lambda point: point["tokens_per_s"] / 1e3), math.log2),
              panel(400, 0, "planned memory, GiB, over batch size", by_seq_len(lambda point: point["planned_bytes"] / 2**30), math.log2),
              panel(0, 240, "build without cache, s, over kernels", [("", [(b["kernels"], b["seconds"]) for b in built])]),
              panel(400, 240, "verify and load, ms, over modules in the bundle",
                    [("", [(s["modules"], 1e3 * s["verify_and_load_s"]) for s in started])]),
          ]) + "</svg>")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["build", "startup", "plot"])
    parser.add_argument("dir", type=pathlib.Path, help="where bundles, build.jsonl, startup.jsonl and bench.json lie")
    parser.add_argument("--precast", default="target/release/precast")
    parser.add_argument("--precast-aot", default="target/release/precast-aot")
    parser.add_argument("--teacher", default="aot/models/smollm2-135m.json")
    parser.add_argument("--student", default="aot/models/smollm2-135m.json")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    if arguments.what == "plot":
        return plot(arguments)
    arguments.dir.mkdir(parents=True, exist_ok=True)
    with open(arguments.dir / f"{arguments.what}.jsonl", "w") as lines:
        for record in {"build": build, "startup": startup}[arguments.what](arguments):
            print(json.dumps(record), file=lines, flush=True)


if __name__ == "__main__":
    main()
