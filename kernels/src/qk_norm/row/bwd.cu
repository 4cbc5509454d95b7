// Gradient through the rotary embedding and the norm over all heads of a token's queries and of its keys, in place, and
// partial sums of dgamma. A block takes the queries or the keys of the `rows` tokens of one partial, one after the
// other, the dgamma of its columns in registers: no atomics, no second pass.
// Bound: memory. Reads queries, keys and their gradients once and writes the gradients once.
// Source: the gradient of fwd.cu; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "qk_norm/row/part.cuh"

KERNEL(qk_norm_row_bwd_params) {
    __shared__ float scratch[2][VARIANT_THREADS / WARP];
    const Part part(p.key_heads);
    Pair gamma[PER_THREAD];
    load_pairs(gamma, part, part.of<const KEY_X>(p.gamma, 0, part.all));
    float dgamma_a[PER_THREAD][WIDTH] = {}, dgamma_b[PER_THREAD][WIDTH] = {};

    const uint32_t first = blockIdx.x * p.rows, end = min(first + p.rows, p.tokens);
    for (uint32_t token = first; token < end; token++) { // equal for the whole CTA
        KEY_X* dx = part.of<KEY_X>(p.dx, token, p.row_heads);
        Pair x[PER_THREAD], turned[PER_THREAD];
        load_pairs(x, part, part.of<const KEY_X>(p.raw, token, part.all));
        load_pairs(turned, part, dx);
        const Gradient gradient(p, part, token, x, turned, gamma, scratch);
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                dgamma_a[j][i] += gradient.a[j][i] * (x[j].a[i] * gradient.rstd);
                dgamma_b[j][i] += gradient.b[j][i] * (x[j].b[i] * gradient.rstd);
            }
            if (part.has(j)) gradient.store(dx, j, x[j], gamma[j]);
        }
    }

    float* partial = part.of<float>(p.dgamma_partial, blockIdx.x, part.all);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        if (!part.has(j)) continue;
        float* column = head_of(partial, j) + column_of(j) * WIDTH;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) column[i] = dgamma_a[j][i], column[HALF + i] = dgamma_b[j][i];
    }
}
