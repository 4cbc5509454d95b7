// RMSNorm backward: what rmsnorm/bwd.cu writes, and what quantize.cu makes of its dx for the gradient of the product below.
// A CTA takes the `rows` rows of one partial sum; each of its row groups takes every ROWS-th of them with its share of dgamma in
// registers, then the groups add them up in shared memory, one after the other. A row stays in registers from its load to the
// store of its values.
// Bound: memory. Reads x, dy (and dresidual) once, writes dx and one byte a value.
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; quantize.cu.
enum : unsigned { ROW = KEY_H };
#include "int8/norm_bwd.cuh"
#include "int8_training.h"

KERNEL(int8_rmsnorm_bwd_params) {
    __shared__ float sums[VARIANT_THREADS / WARP];
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t group = threadIdx.x / VARIANT_ROW_THREADS;
    const uint32_t first = blockIdx.x * p.rows, end = min(first + p.rows, p.tokens);

    Packed gamma;
    load_share(gamma, (const KEY_X*)p.gamma, true);
    Share dgamma = {};
#pragma unroll 1
    for (uint32_t start = first; start < end; start += ROWS) { // the same for the whole block
        const uint32_t token = start + group;
        Gradient gradient;
        gradient.load(p, token, token < end);
        float dot = 0.0f;
#pragma unroll
        for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
            for (uint32_t j = 0; j < VECTORS; j++) {
                keep_packed(gamma[round][j]);
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i++) {
                    const float product = gradient.product(round, j, i);
                    dgamma.v[round][j][i] += product;
                    dot += gamma[round][j][i] * product;
                }
            }
        gradient.store(p, token, token < end, gamma, row_sum(dot, sums) / ROW, scratch);
    }

    __shared__ float4_t total[ROWS == 1 ? 1 : ROW / 4];
    float* partial = (float*)p.dgamma_partial + uint64_t(blockIdx.x) * ROW;
#pragma unroll 1
    for (uint32_t turn = 0; turn < ROWS; turn++) {
        if (turn > 0) sync_block();
        if (group != turn) continue;
#pragma unroll
        for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
            for (uint32_t j = 0; j < VECTORS; j++) {
                if (!inside(round, j)) continue;
#pragma unroll
                for (uint32_t half = 0; half < WIDTH; half += 4) {
                    const uint32_t column = column_of(round, j) + half;
                    float4_t sum = turn > 0 ? total[column / 4] : float4_t{};
#pragma unroll
                    for (uint32_t i = 0; i < 4; i++) sum.v[i] += dgamma.v[round][j][half + i];
                    if (turn + 1 < ROWS)
                        total[column / 4] = sum;
                    else
                        store4(partial + column, sum);
                }
            }
    }
}
