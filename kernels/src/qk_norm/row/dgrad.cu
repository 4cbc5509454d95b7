// Gradient through the rotary embedding and the norm over all heads of a token's queries and of its keys, in place, for
// frozen gammas. The norm's scale follows from the heads, which are read anyway.
// Bound: memory. Reads queries, keys and their gradients once and writes the gradients once.
// Source: the gradient of fwd.cu; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "qk_norm/row/part.cuh"

KERNEL(qk_norm_row_dgrad_params) {
    __shared__ float scratch[2][VARIANT_THREADS / WARP];
    const uint32_t token = blockIdx.x;
    const Part part(p.key_heads);
    KEY_X* dx = part.of<KEY_X>(p.dx, token, p.row_heads);

    Pair x[PER_THREAD], turned[PER_THREAD], gamma[PER_THREAD];
    load_pairs(x, part, part.of<const KEY_X>(p.raw, token, part.all));
    load_pairs(turned, part, dx);
    load_pairs(gamma, part, part.of<const KEY_X>(p.gamma, 0, part.all));
    const Gradient gradient(p, part, token, x, turned, gamma, scratch);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++)
        if (part.has(j)) gradient.store(dx, j, x[j], gamma[j]);
}
