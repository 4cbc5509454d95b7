#!/bin/sh
# Measures a sweep of random blocks in Q4_K_M's mix: run.sh 7b|32b|CONFIG.json DIR TOKENS MEMORY [words of precast cache ...]
# Prints the rate of the file by O_DIRECT, and then what `precast cache` says: resident, and swept through MEMORY. See README.md.
set -eu
[ $# -ge 4 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
model=$1 dir=$2 tokens=$3 memory=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
config=$here/../../aot/models/qwen2.5-7b.json
mkdir -p "$dir"
case $model in
7b) ;;
32b) # Qwen2.5-32B's shape.
    sed 's/"hidden_size": 3584/"hidden_size": 5120/; s/"intermediate_size": 18944/"intermediate_size": 27648/
        s/"num_hidden_layers": 28/"num_hidden_layers": 64/; s/"num_attention_heads": 28/"num_attention_heads": 40/
        s/"num_key_value_heads": 4/"num_key_value_heads": 8/' "$config" > "$dir/config.json"
    config=$dir/config.json ;;
*) config=$model ;;
esac
teacher=$dir/model/model.gguf seq_len=${SEQ_LEN:-1024}
[ -e "$teacher" ] || precast init --config "$config" --format Q4_K_M --out "$dir/model"
# A token more a sequence: the last one is predicted.
python3 -c 'import random, struct, sys
random.seed(1)
vocab, count = int(sys.argv[1]), int(sys.argv[2])
sys.stdout.buffer.write(b"".join(struct.pack("<I", random.randrange(vocab)) for _ in range(count)))' \
    "${VOCAB:-150000}" $((tokens / seq_len * (seq_len + 1))) > "$dir/data.bin"

echo "file, O_DIRECT: $(dd if="$teacher" of=/dev/null bs=16M iflag=direct 2>&1 | tail -n 1)"
for mode in ${MODES:-resident swept}; do
    rm -rf "$dir/$mode"
    limit=
    [ "$mode" = resident ] || limit="--memory $memory"
    echo "$mode:"
    # shellcheck disable=SC2086 # Two words, or none.
    precast cache --teacher "$teacher" --data "$dir/data.bin" --batch-size "${BATCH:-8}" --seq-len "$seq_len" \
        $limit "$@" --out "$dir/$mode" 2>&1
done
for file in hidden.bin index.bin; do
    [ -e "$dir/resident/$file" ] && [ -e "$dir/swept/$file" ] || continue
    cmp "$dir/resident/$file" "$dir/swept/$file"
done
