#!/bin/bash
# Builds llmq on the GPU machine, without a network, and trains Qwen2.5-0.5B from random weights: its last steps at one and at
# sixteen micro-batches. Usage: llmq.sh SOURCES
#
# SOURCES holds `git archive` of github.com/IST-DASLab/llmq (b77d969) as llmq, nlohmann/json (v3.11.3) as json,
# NVIDIA/cudnn-frontend (v1.12.0) as cudnn-fe, CLIUtils/CLI11 (v2.6.1) as cli11 and fmtlib/fmt (12.0.0) as fmt. Its
# tests want catch2: remove the line of llmq/CMakeLists.txt that makes it available.
# cuDNN is the wheel that PyTorch brings along.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sources=$(cd "$1" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cudnn=$("$python" -c "import nvidia.cudnn; print(list(nvidia.cudnn.__path__)[0])")
mkdir "$work/cudnn" "$work/model"
for library in "$cudnn"/lib/*.so.9; do
    name=$(basename "$library")
    ln -s "$library" "$work/cudnn/$name"
    ln -s "$library" "$work/cudnn/${name%.9}"
done

cmake -S "$sources/llmq" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES=90 \
    -DUSE_MPI=OFF -DUSE_CUFILE=OFF -DUSE_NVML=OFF -DBUILD_TESTS=OFF -DFETCHCONTENT_FULLY_DISCONNECTED=ON \
    -DFETCHCONTENT_SOURCE_DIR_JSON="$sources/json" -DFETCHCONTENT_SOURCE_DIR_CUDNN-FE="$sources/cudnn-fe" \
    -DFETCHCONTENT_SOURCE_DIR_CLI11="$sources/cli11" -DFETCHCONTENT_SOURCE_DIR_FMT="$sources/fmt" \
    -DCUDNN_INCLUDE_DIR="$cudnn/include" -DCUDNN_LIBRARY="$work/cudnn/libcudnn.so" \
    -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_EXAMPLES=OFF -DCUDNN_FRONTEND_BUILD_SAMPLES=OFF -DCUDNN_FRONTEND_BUILD_TESTS=OFF >&2
cmake --build "$work/build" --parallel "$(nproc)" --target train >&2

cp "$here/../../aot/models/qwen2.5-0.5b.json" "$work/model/config.json"
cd "$work"
# llmq's token files: 256 words of header, then ids.
"$python" - <<'PYTHON'
import numpy as np

random = np.random.default_rng(0)
for name, tokens in ("train", 40_000_000), ("eval", 200_000):
    header = np.zeros(256, np.int32)
    header[:2] = np.frombuffer(b"BIN.TOK\n", np.int32)
    header[2:7] = 2, 4, tokens, 151936, 0
    ids = random.integers(0, 151643, tokens, dtype=np.int32)
    open(f"{name}.bin", "wb").write(header.tobytes() + ids.tobytes())
PYTHON
export LD_LIBRARY_PATH=$work/cudnn:$cudnn/lib:${LD_LIBRARY_PATH:-}
# Sixteen micro-batches with moments in bf16, which is what llmq is fastest with.
for options in "--grad-accumulation=1" "--grad-accumulation=16 --opt-m-dtype=bf16 --opt-v-dtype=bf16"; do
    echo "llmq $options"
    # shellcheck disable=SC2086 # options are words
    build/train --model=model --from-scratch --train-file=train.bin --eval-file=eval.bin --batch-size=8 --seq-len=1024 \
        --steps=24 --gpus=1 --eval-every-n-steps=1000 --out-dir=out --ckpt-interval=100000 --lmhead-chunks=4 \
        --model-dtype=bf16 $options 2>&1 | grep -a '^\[T\]' | tail -4
done
