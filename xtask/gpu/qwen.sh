#!/bin/sh
# Qwen2.5-1.5B -> 0.5B shapes at batch 8 x 1024, from the root of the checkout: DIR/qwen.sh [STEPS [bundle|cublas]].
# Loads and launches are counted from outside the program, in front of the driver's functions: those of libraries too.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
precast="$here/precast"
steps=${1:-20}
gemm=${2:-bundle}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cc -shared -fPIC -O1 -o "$scratch/shim.so" tests/libcuda/shim.c -ldl
python3 -c "
import random, struct, sys
random.seed(0)
sys.stdout.buffer.write(struct.pack('<400000I', *(random.randrange(151643) for _ in range(400000))))" > "$scratch/tokens.bin"
"$precast" init --config aot/models/qwen2.5-1.5b.json --out "$scratch/teacher" --seed 1
"$precast" init --config aot/models/qwen2.5-0.5b.json --out "$scratch/student" --seed 2
for run in 1 2; do
    LD_PRELOAD="$scratch/shim.so" PRECAST_SHIM_LOG="$scratch/calls-$run" "$precast" distill --gemm "$gemm" \
        --teacher "$scratch/teacher" --student "$scratch/student" --data "$scratch/tokens.bin" --out "$scratch/run-$run" \
        --steps "$steps" --batch-size 8 --seq-len 1024 --checkpoint-every 0 > "$scratch/output-$run"
    tail -n 12 "$scratch/output-$run"
    echo "== loads: $(grep -c load "$scratch/calls-$run"), launches: $(grep -c launch "$scratch/calls-$run")," \
        "loads after the first launch: $(sed '1,/launch/d' "$scratch/calls-$run" | grep -c load || true)"
done
for run in 1 2; do
    grep -o '"loss":[^,]*' "$scratch/run-$run/metrics.jsonl" > "$scratch/loss-$run"
done
cmp "$scratch/loss-1" "$scratch/loss-2"
cmp "$scratch/run-1/student/model.safetensors" "$scratch/run-2/student/model.safetensors"
echo "== both runs end with the same losses and the same weights, to the last bit"
head -n 1 "$scratch/run-1/metrics.jsonl"; tail -n 1 "$scratch/run-1/metrics.jsonl"
cat "$scratch/run-1/run.json" | head -c 3000
