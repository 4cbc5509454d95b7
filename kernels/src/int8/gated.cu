// SwiGLU to rotated int8: what quantize.cu makes of swiglu/fwd.cu's y, and y, if the backward pass reads it.
// One pass over memory: a row stays in registers from its load to the store of its values. What is quantised is y as it is
// stored, or would be.
// Bound: memory. Reads gate and up once, writes one byte a value (and y).
// Sources: Shazeer, "GLU Variants Improve Transformer", 2020; quantize.cu.
enum : unsigned { ROW = KEY_N };
#include "int8/row.cuh"
#include "int8_training.h"

typedef vector<bf16, WIDTH> Vector;

KERNEL(int8_gated_params) {
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t from_last = row_from_last(), token = p.tokens - 1 - from_last;
    const bool valid = from_last < p.tokens;
    const uint64_t row = uint64_t(token) * ROW;
    const bf16* gate_up = (const bf16*)p.gate_up + 2 * row;

    Vector gate[ROUNDS][VECTORS], up[ROUNDS][VECTORS]; // all loads are in flight together
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            gate[round][j] = up[round][j] = {};
            if (!valid || !inside(round, j)) continue;
            gate[round][j] = load_vector<WIDTH>(gate_up, column_of(round, j) / WIDTH);
            up[round][j] = load_vector<WIDTH>(gate_up + ROW, column_of(round, j) / WIDTH);
        }
    Share share;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            const Vector &g = gate[round][j], &u = up[round][j];
            float y[WIDTH];
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) y[i] = g[i] * sigmoid(g[i]) * u[i];
            store_rounded(share.v[round][j], y, (bf16*)p.y + row, column_of(round, j), KEY_KEPT && valid && inside(round, j));
        }
    store_quantized(share, (uint8_t*)p.q + row, (float*)p.scale + token, valid, scratch);
}
