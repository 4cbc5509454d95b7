// RMSNorm backward where gamma does not train: what rmsnorm/dgrad.cu writes, and what quantize.cu makes of that for the gradient of
// the product below. One pass over memory: a row stays in registers from its load to the store of its values.
// Bound: memory. Reads x, dy (and dresidual) once, writes dx and one byte a value.
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; quantize.cu.
enum : unsigned { ROW = KEY_H };
#include "int8/norm_bwd.cuh"
#include "int8_training.h"

KERNEL(int8_rmsnorm_dgrad_params) {
    __shared__ float sums[VARIANT_THREADS / WARP];
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t from_last = row_from_last(), token = p.tokens - 1 - from_last;
    const bool valid = from_last < p.tokens;

    Packed gamma;
    load_share(gamma, (const KEY_X*)p.gamma, valid);
    Gradient gradient;
    gradient.load(p, token, valid);
    float dot = 0.0f;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++)
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) dot += gamma[round][j][i] * gradient.product(round, j, i);
    gradient.store(p, token, valid, gamma, row_sum(dot, sums) / ROW, scratch);
}
