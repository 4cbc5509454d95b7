// Assigns vectors of heads to threads: a few CTAs per token, enough to give each thread one 16-byte vector, so that
// many loads are in flight and no loop waits for them.
#pragma once
#include "output_gate.h"
#include "vector.cuh"

enum : uint32_t {
    WIDTH = KEY_D % WIDTH_OF(KEY_X) == 0 ? WIDTH_OF(KEY_X) : 1,
    COLUMNS = KEY_D / WIDTH, // vectors of a head
};
typedef vector<KEY_X, WIDTH> Vector;

// First elements of the thread's vector among outputs, and of its gate among packed rows; not `valid` behind a token's
// end.
struct Place {
    uint64_t o, gate;
    bool valid;
};

__device__ __forceinline__ Place place_of(uint32_t heads, uint32_t row_heads) {
    const uint32_t vectors = heads * COLUMNS;
    const uint32_t segments = (vectors + VARIANT_THREADS - 1) / VARIANT_THREADS;
    const uint32_t token = blockIdx.x / segments;
    const uint32_t i = blockIdx.x % segments * VARIANT_THREADS + threadIdx.x;
    const uint64_t gate_head = uint64_t(token) * row_heads + 2 * (i / COLUMNS) + 1; // behind its query
    return {(uint64_t(token) * vectors + i) * WIDTH, gate_head * KEY_D + i % COLUMNS * WIDTH, i < vectors};
}
