#!/bin/sh
# Every GPU check, from the root of the checkout: DIR/run.sh (packed by `cargo xtask gpu DIR`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PRECAST_BIN="$here/precast" PRECAST_TEST_DEVICE="${PRECAST_TEST_DEVICE:-cuda:0}" PRECAST_TEST_BUNDLE="$here/tests.bundle"
export INSTA_UPDATE=no INSTA_WORKSPACE_ROOT="$PWD"
golden=tests/fixtures/golden/qwen2-tied
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

echo "== doctor"
"$PRECAST_BIN" doctor
echo "== every kernel of the built-in models, and of the tests' models, against its host reference"
"$PRECAST_BIN" selftest --device "$PRECAST_TEST_DEVICE"
"$PRECAST_BIN" selftest --device "$PRECAST_TEST_DEVICE" --bundle "$PRECAST_TEST_BUNDLE" --seed 7
echo "== whole-program tests; what they say of the artifact itself needs cargo and is CI's"
"$here/programs" --test-threads 2 --skip artifact
if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck initcheck racecheck synccheck; do
        echo "== compute-sanitizer $tool: every kernel, and a tiny plan with separate allocations"
        compute-sanitizer --tool $tool --error-exitcode 9 "$PRECAST_BIN" selftest --device "$PRECAST_TEST_DEVICE" \
            --bundle "$PRECAST_TEST_BUNDLE" | tail -n 2
        for precision in fp32 bf16; do
            compute-sanitizer --tool $tool --error-exitcode 9 "$PRECAST_BIN" distill --teacher $golden/teacher \
                --student $golden/student --data $golden/tokens.bin --out "$scratch/$tool-$precision" --steps 2 \
                --batch-size 2 --seq-len 33 --grad-accum 2 --precision $precision --device "$PRECAST_TEST_DEVICE" \
                --bundle "$PRECAST_TEST_BUNDLE" --checkpoint-every 0 --separate-allocations | tail -n 1
        done
    done
fi
echo "== all passed"
