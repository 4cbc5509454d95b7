// Takes query, key and value heads out of packed rows: RMSNorm of each query and key, then the rotary embedding of its
// first elements; values are copied. A few lanes take a head, two vectors each.
// Bound: memory. Reads queries, keys and values once and writes them once; gates between queries are skipped.
// Source: Henry et al., "Query-Key Normalization for Transformers", 2020, as Hugging Face's `Qwen3_5Attention` has it.
#include "qk_norm/gated/head.cuh"

KERNEL(qk_norm_gated_fwd_params) {
    const Heads heads = {p.query_heads, p.key_heads};
    const uint32_t item = blockIdx.x * GROUPS + threadIdx.x / LANES;
    const bool valid = item < p.tokens * heads.all() && lane_column() < COLUMNS;
    const uint32_t token = item / heads.all(), head = item % heads.all();
    Pair x, gamma;
    x.load((const KEY_X*)p.packed + heads.packed(token, head), valid);
    gamma.load((const KEY_X*)p.gamma + heads.gamma(head), valid);
    Angles turn;
    turn.load(p, token, valid);
    const float rstd = x.rstd(p.eps);
    if (!valid) return;
    KEY_X* y = (KEY_X*)p.qkv + heads.plain(token, head);
    if (heads.is_value(head)) {
        store_pair(y, x);
        return;
    }
    float a[WIDTH], b[WIDTH];
#pragma unroll
    for (uint32_t i = 0; i < WIDTH; i++) {
        const float ya = gamma_of(gamma.a[i]) * (x.a[i] * rstd), yb = gamma_of(gamma.b[i]) * (x.b[i] * rstd);
        a[i] = ya * turn.cos[i] - yb * turn.sin[i];
        b[i] = yb * turn.cos[i] + ya * turn.sin[i];
    }
    store_pair(y, a, b);
}
