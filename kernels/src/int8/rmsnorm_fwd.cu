// RMSNorm of a model that trains, the residual addition fused in: what rmsnorm/fwd.cu writes for the backward pass, and what
// quantize.cu makes of its y for the product behind it.
// One pass over memory: a row stays in registers from its load to the store of its values. What is quantised is what is stored.
// Bound: memory. Reads x (and delta) once, writes y (and the sum) and one byte a value.
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; quantize.cu.
enum : unsigned { ROW = KEY_H };
#include "int8/norm.cuh"
#include "int8_training.h"

KERNEL(int8_rmsnorm_fwd_params) {
    __shared__ float sums[VARIANT_THREADS / WARP];
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t from_last = row_from_last(), token = p.tokens - 1 - from_last;
    const bool valid = from_last < p.tokens;
    const uint64_t row = uint64_t(token) * ROW;

    Normed normed;
    normalise(normed, p, row, valid, sums);
    if (valid && threadIdx.x % VARIANT_ROW_THREADS == 0) ((float*)p.rstd)[token] = normed.rstd;
    Share share;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            float y[WIDTH];
            normed.values(y, round, j);
            store_rounded(share.v[round][j], y, (KEY_X*)p.y + row, column_of(round, j), valid && inside(round, j));
        }
    store_quantized(share, (uint8_t*)p.q + row, (float*)p.scale + token, valid, scratch);
}
