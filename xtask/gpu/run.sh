#!/bin/sh
# Every GPU check, from the root of the checkout: DIR/run.sh (packed by `cargo xtask gpu DIR`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PRECAST_BIN="$here/precast" PRECAST_TEST_DEVICE="${PRECAST_TEST_DEVICE:-cuda:0}" PRECAST_TEST_BUNDLE="$here/tests.bundle"
export INSTA_UPDATE=no INSTA_WORKSPACE_ROOT="$PWD" INSTA_FORCE_PASS=0

echo "== doctor"
"$PRECAST_BIN" doctor
echo "== every kernel of the built-in models, and of the tests' models, against its host reference"
"$PRECAST_BIN" selftest --device "$PRECAST_TEST_DEVICE"
"$PRECAST_BIN" selftest --device "$PRECAST_TEST_DEVICE" --bundle "$PRECAST_TEST_BUNDLE" --seed 7
echo "== whole-program tests"
"$here/programs" --test-threads 2 "$@"
