#!/bin/sh
# Every GPU check, from the root of the checkout: DIR/run.sh (packed by `cargo xtask gpu DIR`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PRECAST_BIN="$here/precast" PRECAST_TEST_DEVICE="${PRECAST_TEST_DEVICE:-cuda:0}" PRECAST_TEST_BUNDLE="$here/tests.bundle"
export INSTA_UPDATE=no INSTA_WORKSPACE_ROOT="$PWD" CUDA_DISABLE_PTX_JIT=1
golden=tests/fixtures/golden/made-qwen2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for role in teacher student; do
    "$PRECAST_BIN" init --config $golden/$role/config.json --out "$scratch/$role" --seed 1
done

# Every kernel, and a tiny plan with separate allocations, under one tool of compute-sanitizer, which comes as a library
# in the driver.
sanitize() {
    export PRECAST_ALLOW_INJECTION=1
    compute-sanitizer --tool "$1" --error-exitcode 9 "$PRECAST_BIN" selftest --device "$PRECAST_TEST_DEVICE" \
        --bundle "$PRECAST_TEST_BUNDLE"
    # initcheck keeps its record of new memory by work that the first launch can overtake: what that writes would be
    # reported as never written.
    [ "$1" != initcheck ] || export LD_PRELOAD="$scratch/shim.so" PRECAST_SHIM_WAITS=2
    for precision in fp32 bf16; do
        compute-sanitizer --tool "$1" --error-exitcode 9 "$PRECAST_BIN" distill --teacher "$scratch/teacher" \
            --student "$scratch/student" --data $golden/tokens.bin --out "$scratch/$1-$precision" --steps 2 \
            --batch-size 2 --seq-len 33 --grad-accum 2 --precision $precision --device "$PRECAST_TEST_DEVICE" \
            --bundle "$PRECAST_TEST_BUNDLE" --checkpoint-every 0 --separate-allocations
    done
}

echo "== doctor"
"$PRECAST_BIN" doctor
echo "== every kernel of the built-in models, and of the tests' models, against its host reference"
"$PRECAST_BIN" selftest --device "$PRECAST_TEST_DEVICE"
"$PRECAST_BIN" selftest --device "$PRECAST_TEST_DEVICE" --bundle "$PRECAST_TEST_BUNDLE" --seed 7
echo "== the same of the kernels that every architecture has"
"$PRECAST_BIN" selftest --device portable:0 --bundle "$here/portable.bundle"
"$PRECAST_BIN" selftest --device portable:0 --bundle "$PRECAST_TEST_BUNDLE" --seed 7
echo "== plain kernels, and the kernels of two libraries in one process"
"$here/plain"
"$here/ports"
echo "== whole-program tests; what they say of the artifact itself needs cargo and is CI's"
# One at a time: a test compares what its run took with what the device has left. What a kill leaves on disk is the same on
# every device.
"$here/programs" --test-threads 1 --skip artifact --skip kill
PRECAST_TEST_DEVICE=portable:0 "$here/programs" --test-threads 1 golden determinism
if [ -d "$here/golden" ]; then
    echo "== golden cases that were packed beside the tree's"
    PRECAST_TEST_GOLDEN="$here/golden" "$here/programs" --test-threads 1 --nocapture golden_steps:: golden_int8:: golden_rollouts::
fi
if command -v compute-sanitizer > /dev/null; then
    cc -shared -fPIC -O1 -o "$scratch/shim.so" tests/libcuda/shim.c -ldl
    tools="memcheck initcheck racecheck synccheck"
    for tool in $tools; do
        (trap 'echo $? > "$scratch/$tool.status"' EXIT; sanitize $tool > "$scratch/$tool.log" 2>&1) &
    done
    wait
    for tool in $tools; do
        echo "== compute-sanitizer $tool: exit status $(cat "$scratch/$tool.status")"
        grep -E "^=+ (ERROR|RACECHECK) SUMMARY|kernels, .* failed" "$scratch/$tool.log" || tail -n 20 "$scratch/$tool.log"
    done
    [ "$(cat "$scratch"/*.status | sort -u)" = 0 ]
fi
echo "== all passed"
