#!/bin/sh
# Measures PyTorch on the work of a distillation step: one JSON object a line. See README.md.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
models=$here/../../aot/models
for mode in ${MODES:-eager compile liger ops}; do
    # A process each: start-up is part of what is measured.
    # TEACHER= leaves the teacher out.
    teacher=${TEACHER-$models/qwen2.5-1.5b.json} student=${STUDENT:-$models/qwen2.5-0.5b.json}
    if [ "$mode" = on-policy ]; then
        "${PYTHON:-python3}" "$here/on_policy.py" --teacher "$teacher" --student "$student" --rollouts "${ROLLOUTS:-256}"
        continue
    fi
    "${PYTHON:-python3}" "$here/peers.py" "$mode" ${teacher:+--teacher "$teacher"} \
        --student "$student" \
        --batch "${BATCH:-8}" --seq "${SEQ:-1024}" --steps "${STEPS:-20}" --lora-rank "${LORA_RANK:-0}" \
        ${EXPERTS:+--experts "$EXPERTS"}
done
