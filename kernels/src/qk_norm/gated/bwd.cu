// Gradient of queries and keys as they were, see gradient.cuh, and of values, and partial sums of dgamma. A CTA takes
// the query heads, or the key and value heads, of the `rows` tokens of one partial, its dgamma in registers; lanes and
// then warps add theirs up in a fixed order.
// Bound: memory. Reads queries and keys and all gradients once, writes gradients once; gates' gradients are skipped.
// Source: the gradient of fwd.cu; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "qk_norm/gated/gradient.cuh"

KERNEL(qk_norm_gated_bwd_params) {
    __shared__ float sums[VARIANT_THREADS / WARP][KEY_D];
    const Heads heads = {p.query_heads, p.key_heads};
    const uint32_t keys = blockIdx.y; // 0: queries, 1: keys and values
    const uint32_t per_token = keys ? 2 * p.key_heads : p.query_heads, before = keys ? p.query_heads : 0;
    const uint32_t first = blockIdx.x * p.rows;
    const uint32_t items = (min(first + p.rows, p.tokens) - first) * per_token;
    Pair gamma;
    gamma.load((const KEY_X*)p.gamma + keys * KEY_D, lane_column() < COLUMNS);
    float dgamma_a[WIDTH] = {}, dgamma_b[WIDTH] = {};

    for (uint32_t start = 0; start < items; start += GROUPS) { // equal for the whole CTA
        const uint32_t item = start + threadIdx.x / LANES;
        const bool valid = item < items && lane_column() < COLUMNS;
        const uint32_t token = first + item / per_token, head = before + item % per_token;
        const bool normed = valid && !heads.is_value(head);
        Pair x, dy;
        x.load((const KEY_X*)p.packed + heads.packed(token, head), normed);
        dy.load((const KEY_X*)p.dqkv + heads.plain(token, head), valid);
        Angles turn;
        turn.load(p, token, normed);
        keep_packed(gamma.a), keep_packed(gamma.b);
        const Gradient gradient(x, dy, turn, gamma, p.eps);
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) { // zeros for values: x is
            dgamma_a[i] += gradient.dgamma_a[i];
            dgamma_b[i] += gradient.dgamma_b[i];
        }
        KEY_X* dx = (KEY_X*)p.dpacked + heads.packed(token, head);
        if (normed)
            store_pair(dx, gradient.a, gradient.b);
        else if (valid)
            store_pair(dx, dy);
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
        float* sum = sums[threadIdx.x / WARP];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            sum[first_of(lane_column()) * WIDTH + i] = dgamma_a[i];
            sum[second_of(lane_column()) * WIDTH + i] = dgamma_b[i];
        }
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
