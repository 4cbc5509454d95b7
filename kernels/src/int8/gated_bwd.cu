// SwiGLU backward, and its result as rotated int8: what swiglu/bwd.cu writes, and what quantize.cu makes of that.
// One pass over memory: a row of gate and up gradients stays in registers, a thread has the same columns of both. They are whole
// rotation blocks of 128, so that none has columns of both. What is quantised is what is stored.
// Bound: memory. Reads gate, up and dy once, writes both gradients and one byte a value.
// Sources: Shazeer, "GLU Variants Improve Transformer", 2020; quantize.cu.
enum : unsigned { ROW = KEY_N }; // of either
#include "int8/row.cuh"
#include "int8_training.h"

typedef vector<bf16, WIDTH> Vector;

KERNEL(int8_gated_bwd_params) {
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t from_last = row_from_last(), token = p.tokens - 1 - from_last;
    const bool valid = from_last < p.tokens;
    const uint64_t row = uint64_t(token) * 2 * ROW;
    const bf16* gate_up = (const bf16*)p.gate_up + row;

    Vector gate[ROUNDS][VECTORS], up[ROUNDS][VECTORS], dy[ROUNDS][VECTORS]; // all loads are in flight together
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            const uint32_t at = column_of(round, j) / WIDTH;
            gate[round][j] = up[round][j] = dy[round][j] = {};
            if (!valid || !inside(round, j)) continue;
            gate[round][j] = load_vector<WIDTH>(gate_up, at);
            up[round][j] = load_vector<WIDTH>(gate_up + ROW, at);
            dy[round][j] = load_vector<WIDTH>((const bf16*)p.dy + row / 2, at);
        }
    Share dgate, dup;
    bf16* dgate_up = (bf16*)p.dgate_up + row;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            const Vector &g = gate[round][j], &u = up[round][j], &d = dy[round][j];
            float dg[WIDTH], du[WIDTH];
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                const float s = sigmoid(g[i]), ds = d[i] * s;
                dg[i] = ds * u[i] * (1.0f + g[i] * (1.0f - s));
                du[i] = ds * g[i];
            }
            const bool there = valid && inside(round, j);
            store_rounded(dgate.v[round][j], dg, dgate_up, column_of(round, j), there);
            store_rounded(dup.v[round][j], du, dgate_up + ROW, column_of(round, j), there);
        }
    rotate(dgate), rotate(dup);
    const uint32_t of_gate = largest_of(dgate), of_up = largest_of(dup);
    const uint32_t largest = row_max(of_gate > of_up ? of_gate : of_up, scratch);
    if (!valid) return;
    const RowScale scale = row_scale<ROTATION>(largest);
    if (threadIdx.x % VARIANT_ROW_THREADS == 0) ((float*)p.scale)[token] = scale.scale;
    store_values(dgate, (uint8_t*)p.q + row, scale);
    store_values(dup, (uint8_t*)p.q + row + ROW, scale);
}
