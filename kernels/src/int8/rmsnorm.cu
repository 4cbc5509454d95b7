// RMSNorm to rotated int8, the residual addition fused in: what a frozen model's products read, and nothing else, is written.
// One pass over memory: a row stays in registers from its load to the store of its values. What is normalized is rounded once,
// to int8.
// Bound: memory. Reads x (and delta) once, writes one byte a value (and the sum).
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; quantize.cu.
enum : unsigned { ROW = KEY_H };
#include "int8/norm.cuh"

KERNEL(int8_rmsnorm_params) {
    __shared__ float sums[VARIANT_THREADS / WARP];
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t from_last = row_from_last(), token = p.tokens - 1 - from_last;
    const bool valid = from_last < p.tokens;
    const uint64_t row = uint64_t(token) * ROW;

    Normed normed;
    normalise(normed, p, row, valid, sums);
    Share share;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) normed.values(share.v[round][j], round, j);
    store_quantized(share, (uint8_t*)p.q + row, (float*)p.scale + token, valid, scratch);
}
