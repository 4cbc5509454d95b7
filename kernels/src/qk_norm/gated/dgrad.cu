// Gradient of queries and keys as they were, see gradient.cuh, and of values, for frozen gammas. A few lanes take a
// head, two vectors each.
// Bound: memory. Reads queries and keys and all gradients once, writes gradients once; gates' gradients are skipped.
// Source: the gradient of fwd.cu; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "qk_norm/gated/gradient.cuh"

KERNEL(qk_norm_gated_dgrad_params) {
    const Heads heads = {p.query_heads, p.key_heads};
    const uint32_t item = blockIdx.x * GROUPS + threadIdx.x / LANES;
    const bool valid = item < p.tokens * heads.all() && lane_column() < COLUMNS;
    const uint32_t token = item / heads.all(), head = item % heads.all();
    const bool normed = valid && !heads.is_value(head);
    Pair x, dy, gamma;
    x.load((const KEY_X*)p.packed + heads.packed(token, head), normed);
    dy.load((const KEY_X*)p.dqkv + heads.plain(token, head), valid);
    gamma.load((const KEY_X*)p.gamma + heads.gamma(head), normed);
    Angles turn;
    turn.load(p, token, normed);
    const Gradient gradient(x, dy, turn, gamma, p.eps);
    KEY_X* dx = (KEY_X*)p.dpacked + heads.packed(token, head);
    if (normed)
        store_pair(dx, gradient.a, gradient.b);
    else if (valid)
        store_pair(dx, dy);
}
