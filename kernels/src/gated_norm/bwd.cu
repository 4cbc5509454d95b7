// Gradients of heads and gates, see gradient.cuh, and partial sums of dgamma. A CTA takes the heads of the `rows`
// tokens of one partial, its dgamma in registers, the next heads in flight; lanes and then warps add theirs up in a
// fixed order.
// Bound: memory. Reads heads, gates and dy once, writes both gradients once.
// Source: the gradient of fwd.cu; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "gated_norm/gradient.cuh"

KERNEL(gated_norm_bwd_params) {
    __shared__ float sums[VARIANT_THREADS / WARP][KEY_D];
    const uint32_t column = threadIdx.x % LANES * WIDTH;
    const uint32_t first = blockIdx.x * p.rows * p.heads;
    const uint32_t end = min((blockIdx.x + 1) * p.rows, p.tokens) * p.heads;
    Vector gamma = {};
    if (column < KEY_D) gamma = load_vector<WIDTH>((const KEY_X*)p.gamma + column, 0);
    float dgamma[WIDTH] = {};

    uint32_t item = first + threadIdx.x / LANES;
    Share next;
    next.load(p, Place(p, item), item < end && column < KEY_D);
    for (uint32_t start = first; start < end; start += GROUPS) { // equal for the whole CTA
        const bool valid = item < end && column < KEY_D;
        const Place at(p, item);
        const Share head = next;
        item += GROUPS;
        next.load(p, Place(p, item), item < end && column < KEY_D);
        keep_packed(gamma);
        const Gradient gradient(head, gamma, p.eps);
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) dgamma[i] += gradient.dgamma[i];
        if (valid) gradient.store(p, at);
    }

    // Lanes of a warp with the same column, then warps.
#pragma unroll
    for (uint32_t lanes = LANES; lanes < WARP; lanes *= 2) {
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) dgamma[i] += shuffle_xor(dgamma[i], lanes);
    }
    if (threadIdx.x % WARP < COLUMNS) {
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) sums[threadIdx.x / WARP][column + i] = dgamma[i];
    }
    sync_block();
    for (uint32_t i = threadIdx.x; i < KEY_D; i += VARIANT_THREADS) {
        float total = 0.0f;
#pragma unroll
        for (uint32_t w = 0; w < VARIANT_THREADS / WARP; w++) total += sums[w][i];
        ((float*)p.dgamma_partial)[uint64_t(blockIdx.x) * KEY_D + i] = total;
    }
}
