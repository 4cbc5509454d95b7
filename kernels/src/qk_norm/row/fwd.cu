// RMSNorm of a token's queries and of its keys, each over all heads, then the rotary embedding, in place: one read and
// one write of queries and keys. With KEY_KEEP the unmodified heads are written too: the backward pass normalizes them
// again.
// Bound: memory. Reads and writes queries and keys once.
// Source: "2 OLMo 2 Furious", 2025, as Hugging Face's `Olmo2Attention` has it; rope/rotate.cuh.
#include "qk_norm/row/part.cuh"

KERNEL(qk_norm_row_fwd_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const uint32_t token = blockIdx.x;
    const Part part(p.key_heads);
    KEY_X* row = part.of<KEY_X>(p.x, token, p.row_heads);

    Pair x[PER_THREAD], gamma[PER_THREAD];
    load_pairs(x, part, row);
    load_pairs(gamma, part, part.of<const KEY_X>(p.gamma, 0, part.all));
    const uint32_t position = ((const uint32_t*)p.position)[token];
    float square = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) square += x[j].square_sum();
    const float rstd = 1.0f / sqrtf(block_sum<VARIANT_THREADS>(square, scratch) / (part.heads * KEY_D) + p.eps);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        if (!part.has(j)) continue;
        Angles turn;
        turn.load(p.cos, p.sin, position, column_of(j), true);
        float a[WIDTH], b[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            const float ya = gamma_of(gamma[j].a[i]) * (x[j].a[i] * rstd), yb = gamma_of(gamma[j].b[i]) * (x[j].b[i] * rstd);
            a[i] = ya * turn.cos[i] - yb * turn.sin[i];
            b[i] = yb * turn.cos[i] + ya * turn.sin[i];
        }
        store_pair(row, j, a, b);
#if KEY_KEEP
        KEY_X* raw = head_of(part.of<KEY_X>(p.raw, token, part.all), j);
        ((Vector*)raw)[column_of(j)] = x[j].a;
        ((Vector*)(raw + HALF))[column_of(j)] = x[j].b;
#endif
    }
}
