// Moves each row to the token that was drawn for it, and keeps that token beside its sequence. A thread takes a row.
// Bound: launch. Source: none needed.
#include "device.cuh"
#include "early.cuh"
#include "sample_advance.h"

KERNEL(sample_advance_params) {
    begin_early();
    const uint32_t row = blockIdx.x * VARIANT_THREADS + threadIdx.x;
    if (row >= p.rows) return;
    uint32_t* slots = (uint32_t*)p.slot;
    const uint32_t slot = slots[row], token = ((const uint32_t*)p.token)[row];
    if (slot == IDLE_SLOT) return;
    uint32_t* end = (uint32_t*)p.end + row;
    if (token == NO_TOKEN) {
        slots[row] = IDLE_SLOT;
        *end = NO_TOKEN;
        return;
    }
    const uint32_t position = ((uint32_t*)p.position)[row] + 1;
    bool ends = position + 1 >= *end;
    for (uint32_t i = 0; i < p.stops; i++) ends |= token == ((const uint32_t*)p.stop)[i];
    if (ends) slots[row] = IDLE_SLOT;
    if (position >= p.seq_len) return;
    ((uint32_t*)p.id)[row] = token;
    ((uint32_t*)p.position)[row] = position;
    const uint64_t place = uint64_t(slot) * p.seq_len + position;
    ((uint32_t*)p.tokens)[place] = token;
    ((float*)p.log_probs)[place] = ((const float*)p.log_prob)[row];
    ((float*)p.lses)[place] = ((const float*)p.lse)[row];
}
