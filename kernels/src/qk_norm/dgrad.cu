// Gradient through the rotary embedding and the norm of each query and key head, in place, for frozen gammas. The
// norm's scale follows from the head, which is read anyway.
// Bound: memory. Reads queries, keys and their gradients once and writes the gradients once.
// Source: the gradient of fwd.cu; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "qk_norm_dgrad.h"
#include "qk_norm/groups.cuh"

KERNEL(qk_norm_dgrad_params) {
    const uint32_t column = threadIdx.x % LANES;
    const uint32_t heads = p.query_heads + p.key_heads;
    for_each_group(p.tokens, heads, column, [&](uint32_t token, uint32_t first, bool valid) {
        KEY_X* row = (KEY_X*)p.dx + uint64_t(token) * p.row_heads * KEY_D;
        const KEY_X* raw = (const KEY_X*)p.raw + uint64_t(token) * heads * KEY_D;

        Pair x[HEADS], turned[HEADS];
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++) {
            x[h].load(raw + (first + h) * KEY_D, column, valid && first + h < heads);
            turned[h].load(row + (first + h) * KEY_D, column, valid && first + h < heads);
        }
        Angles turn;
        turn.load(p.cos, p.sin, valid ? ((const uint32_t*)p.position)[token] : 0, column, valid);
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t head = first + h;
            const bool there = valid && head < heads;
            Pair gamma;
            gamma.load((const KEY_X*)p.gamma + (head < p.query_heads ? 0 : KEY_D), column, there);
            float da[WIDTH], db[WIDTH], dot = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                da[i] = turned[h].a[i] * turn.cos[i] + turned[h].b[i] * turn.sin[i];
                db[i] = turned[h].b[i] * turn.cos[i] - turned[h].a[i] * turn.sin[i];
                dot += gamma_of(gamma.a[i]) * da[i] * x[h].a[i] + gamma_of(gamma.b[i]) * db[i] * x[h].b[i];
            }
            const float rstd = rstd_of(group_sum<LANES>(x[h].square_sum()), p.eps);
            const float mean = group_sum<LANES>(dot) * rstd / KEY_D;
            if (there) {
                float a[WIDTH], b[WIDTH];
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i++) {
                    a[i] = rstd * (gamma_of(gamma.a[i]) * da[i] - x[h].a[i] * rstd * mean);
                    b[i] = rstd * (gamma_of(gamma.b[i]) * db[i] - x[h].b[i] * rstd * mean);
                }
                store_vector(row + head * KEY_D, column, a);
                store_vector(row + head * KEY_D + HALF, column, b);
            }
        }
    });
}
