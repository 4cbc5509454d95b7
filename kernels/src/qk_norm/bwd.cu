// Gradient through the rotary embedding and the norm of each query and key head, in place, and partial sums of dgamma.
// A block takes the query heads or the key heads of the `rows` tokens of one partial, its dgamma in registers; lanes
// and then warps add theirs up in a fixed order. The norm's scale follows from the head, which is read anyway.
// Bound: memory. Reads queries, keys and their gradients once and writes the gradients once.
// Source: the gradient of fwd.cu; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "qk_norm.h"
#include "qk_norm/head.cuh"

KERNEL(qk_norm_bwd_params) {
    __shared__ float sums[VARIANT_THREADS / WARP][KEY_D];
    const uint32_t column = threadIdx.x % LANES;
    const uint32_t all_heads = p.query_heads + p.key_heads;
    const uint32_t keys = blockIdx.y; // 0: queries, 1: keys
    const uint32_t heads = keys ? p.key_heads : p.query_heads, before = keys ? p.query_heads : 0;
    const uint32_t first = blockIdx.x * p.rows;
    const uint32_t items = (min(first + p.rows, p.tokens) - first) * heads;
    Pair gamma;
    gamma.load((const KEY_X*)p.gamma + keys * KEY_D, column, column < COLUMNS);
    float dgamma_a[WIDTH] = {}, dgamma_b[WIDTH] = {};

    for (uint32_t start = 0; start < items; start += GROUPS) { // equal for the whole CTA
        const uint32_t item = start + threadIdx.x / LANES;
        const bool valid = item < items && column < COLUMNS;
        const uint32_t token = first + item / heads, head = before + item % heads;
        KEY_X* dx = (KEY_X*)p.dx + (uint64_t(token) * p.row_heads + head) * KEY_D;
        Pair x, turned;
        x.load((const KEY_X*)p.raw + (uint64_t(token) * all_heads + head) * KEY_D, column, valid);
        turned.load(dx, column, valid);
        Angles turn;
        turn.load(p.cos, p.sin, valid ? ((const uint32_t*)p.position)[token] : 0, column, valid);

        float da[WIDTH], db[WIDTH], dot = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            da[i] = turned.a[i] * turn.cos[i] + turned.b[i] * turn.sin[i];
            db[i] = turned.b[i] * turn.cos[i] - turned.a[i] * turn.sin[i];
            dot += gamma_of(gamma.a[i]) * da[i] * x.a[i] + gamma_of(gamma.b[i]) * db[i] * x.b[i];
        }
        const float rstd = rstd_of(group_sum<LANES>(x.square_sum()), p.eps);
        const float mean = group_sum<LANES>(dot) * rstd / KEY_D;
        float out_a[WIDTH], out_b[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            const float na = x.a[i] * rstd, nb = x.b[i] * rstd;
            dgamma_a[i] += da[i] * na;
            dgamma_b[i] += db[i] * nb;
            out_a[i] = rstd * (gamma_of(gamma.a[i]) * da[i] - na * mean);
            out_b[i] = rstd * (gamma_of(gamma.b[i]) * db[i] - nb * mean);
        }
        if (valid) {
            store_vector(dx, column, out_a);
            store_vector(dx + HALF, column, out_b);
        }
    }

    // Lanes of a warp with the same column, then warps.
#pragma unroll
    for (uint32_t lanes = LANES; lanes < WARP; lanes *= 2) {
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            dgamma_a[i] += shuffle_xor(dgamma_a[i], lanes);
            dgamma_b[i] += shuffle_xor(dgamma_b[i], lanes);
        }
    }
    if (threadIdx.x % WARP < COLUMNS) {
        float* sum = sums[threadIdx.x / WARP] + column * WIDTH;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) sum[i] = dgamma_a[i], sum[HALF + i] = dgamma_b[i];
    }
    sync_block();
    float* partial = (float*)p.dgamma_partial + (uint64_t(blockIdx.x) * 2 + keys) * KEY_D;
    for (uint32_t i = threadIdx.x; i < KEY_D; i += VARIANT_THREADS) {
        float total = 0.0f;
#pragma unroll
        for (uint32_t w = 0; w < VARIANT_THREADS / WARP; w++) total += sums[w][i];
        partial[i] = total;
    }
}
