#!/bin/sh
# Qwen2.5-1.5B -> 0.5B shapes at batch 8 x 1024, from the root of the checkout: DIR/qwen.sh [STEPS [bundle|cublas]].
# Trains twice, and compares the runs bit by bit. Loads and launches are counted from outside the program, in front of the
# driver's functions, those of libraries too: none may be loaded after the first launch. Under cublas a run by the bundle's
# kernels alone comes third: what of its kernels the others have not loaded are the GEMMs that `precast plan` lists.
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
models="--teacher $scratch/teacher --student $scratch/student"
shape="--batch-size 8 --seq-len 1024"

# A run of so many steps: its name, steps, and who computes GEMMs.
train() {
    LD_PRELOAD="$scratch/shim.so" PRECAST_SHIM_LOG="$scratch/calls-$1" "$precast" distill --gemm "$3" $models $shape \
        --data "$scratch/tokens.bin" --out "$scratch/run-$1" --steps "$2" --checkpoint-every 0 > "$scratch/output-$1"
    tail -n 12 "$scratch/output-$1"
}
train 1 "$steps" "$gemm"
train 2 "$steps" "$gemm"
for run in 1 2; do
    grep -o '"loss":[^,]*' "$scratch/run-$run/metrics.jsonl" > "$scratch/loss-$run"
done
cmp "$scratch/loss-1" "$scratch/loss-2"
cmp "$scratch/run-1/student/model.safetensors" "$scratch/run-2/student/model.safetensors"
echo "== both runs end with the same losses and the same weights, to the last bit"
echo '{}' > "$scratch/plan"
if [ "$gemm" = cublas ]; then
    train bundle 1 bundle
    "$precast" plan --json --gemm cublas $models $shape > "$scratch/plan"
fi
python3 - "$scratch" <<'PYTHON'
import collections, json, os, sys
scratch = sys.argv[1]
def counts(run):
    """What the driver was asked before and after its first launch of a graph, and what run.json says was loaded."""
    calls = open(f"{scratch}/calls-{run}").read().split()
    first = calls.index("launch")
    record = json.load(open(f"{scratch}/run-{run}/run.json"))
    own = {f"{load['key']}[{load['variant']}]" for load in record["loads"]}
    before, after = map(collections.Counter, (calls[:first], calls[first:]))
    print(f"== run {run}: run.json lists {len(own)} loads; seen before the first launch: {dict(before)}; after: {dict(after)}")
    assert after["load"] == after["function"] == after["kernel"] == 0, "something was loaded after the first launch"
    return own, before["load"], record
(own, seen, record), (again, seen_again, _) = counts("1"), counts("2")
assert own == again and seen == seen_again
library = record["cublas"]
memory = record["memory"]
print(f"== device memory: {memory['planned']['total_bytes']} bytes planned, {memory['taken_bytes']} taken; cuBLASLt: {library}")
if library is None:
    assert seen == len(own), f"{seen} loads were seen and {len(own)} are listed"
else:
    assert seen > len(own), "no load of cuBLASLt was seen"
    by_bundle, seen_by_bundle, _ = counts("bundle")
    gemms = set(json.load(open(f"{scratch}/plan"))["cublas"]["in_place_of"])
    assert seen_by_bundle == len(by_bundle) and by_bundle - own == gemms, sorted(by_bundle - own ^ gemms)
    # What the bundle's GEMMs do in one launch with another kernel's work is two launches there.
    print(f"== {len(by_bundle)} kernels by the bundle; with cuBLASLt {len(own)}, without the {len(gemms)} of GEMMs and with "
          f"{sorted(own - by_bundle)}, and {seen - len(own)} loads of cuBLASLt's own")
PYTHON
head -n 1 "$scratch/run-1/metrics.jsonl"; tail -n 1 "$scratch/run-1/metrics.jsonl"
