// RMSNorm of each query and key head, then the rotary embedding, in place: one read and one write of queries and keys.
// With KEY_KEEP the unmodified heads are written too: the backward pass normalizes them again.
// Bound: memory. Reads and writes queries and keys once.
// Source: Henry et al., "Query-Key Normalization for Transformers", 2020, as Qwen3 has it; rope/rotate.cuh.
#include "early.cuh"
#include "qk_norm.h"
#include "qk_norm/groups.cuh"

KERNEL(qk_norm_fwd_params) {
    begin_early();
    const uint32_t column = threadIdx.x % LANES;
    const uint32_t heads = p.query_heads + p.key_heads;
    for_each_group(p.tokens, heads, column, [&](uint32_t token, uint32_t first, bool valid) {
        KEY_X* row = (KEY_X*)p.x + uint64_t(token) * p.row_heads * KEY_D;

        Pair x[HEADS];
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++) x[h].load(row + (first + h) * KEY_D, column, valid && first + h < heads);
        Angles turn;
        turn.load(p.cos, p.sin, valid ? ((const uint32_t*)p.position)[token] : 0, column, valid);
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t head = first + h;
            const bool there = valid && head < heads;
            Pair gamma;
            gamma.load((const KEY_X*)p.gamma + (head < p.query_heads ? 0 : KEY_D), column, there);
            const float rstd = rstd_of(group_sum<LANES>(x[h].square_sum()), p.eps);
            if (there) {
                float a[WIDTH], b[WIDTH];
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i++) {
                    const float ya = gamma_of(gamma.a[i]) * (x[h].a[i] * rstd), yb = gamma_of(gamma.b[i]) * (x[h].b[i] * rstd);
                    a[i] = ya * turn.cos[i] - yb * turn.sin[i];
                    b[i] = yb * turn.cos[i] + ya * turn.sin[i];
                }
                store_vector(row + head * KEY_D, column, a);
                store_vector(row + head * KEY_D + HALF, column, b);
#if KEY_KEEP
                KEY_X* raw = (KEY_X*)p.raw + (uint64_t(token) * heads + head) * KEY_D;
                ((Vector*)raw)[column] = x[h].a;
                ((Vector*)(raw + HALF))[column] = x[h].b;
#endif
            }
        }
    });
}
