#!/usr/bin/env python3
"""Counters of each kernel of a command's first launches, by `ncu` with clock and caches as they are, slowest first.
counters.csv is of one H200, `0565f073`:

    export PRECAST_ALLOW_INJECTION=1
    benches/int8/counters.py precast bench step --teacher T --student S --batch-size 8 --seq-len 1024 --steps 1 \\
      --precision int8 --teacher-format int8 > counters.csv
"""

import csv
import re
import subprocess
import sys

COUNTERS = {
    "us": "gpu__time_duration.sum",
    "DRAM, %": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2, %": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "L1, %": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "SM, %": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue, %": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "warps, %": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
}

options = "--cache-control none --clock-control none --filter-mode per-launch-config --launch-count 1".split()
options += "--csv --page raw --print-units base".split()
command = ["ncu", "--metrics", ",".join(COUNTERS.values()), *options, *sys.argv[1:]]
said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
# A header, its units, and a row a launch; what the command itself prints is not quoted.
header, _, *launches = csv.reader(line for line in said.splitlines() if line.startswith('"'))

rows = []
for launch in launches:
    of = dict(zip(header, launch))
    kernel = re.sub("_[0-9a-f]{16}$", "", of["Kernel Name"])
    us, *others = (float(of[name].replace(",", "")) for name in COUNTERS.values())
    rows.append([kernel, f"{us / 1000:.1f}", *(f"{value:.0f}" for value in others)])
rows.sort(key=lambda row: -float(row[1]))
csv.writer(sys.stdout, lineterminator="\n").writerows([["kernel", *COUNTERS], *rows])
