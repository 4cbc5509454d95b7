// Causal grouped-query attention backward on CUDA cores, deterministic: probabilities are recomputed from the saved
// log-sum-exp, and every gradient has one owner. CTAs of the first `heads` rows of the grid own a tile of queries and
// loop over the keys; the others own a tile of keys and loop over the queries of every head in their group.
// Bound: shared memory, which feeds every multiply-add of the seven GEMMs.
// Source: Dao, "FlashAttention-2", 2023.
#include "attention/simt/tile.cuh"

// p and ds of this thread's scores, queries along rows.
struct Shared {
    float *q, *d_o, *k, *v, *score;
};

// dq of a tile of queries: dq = scale * sum over keys of ds k.
__device__ __forceinline__ void query_tile(const attention_bwd_params& p, Shared s, uint32_t head,
                                           const SequenceTile& own) {
    const uint32_t kv_head = head / (p.heads / p.kv_heads);
    const uint32_t columns = p.heads + 2 * p.kv_heads;
    const auto [row, lane, first, position] = thread_row(own.tile);
    const KEY_X* qkv = (const KEY_X*)p.qkv;
    const uint64_t statistics = uint64_t(head) * p.tokens + own.first + position;
    const float lse = position < own.length ? ((const float*)p.lse)[statistics] : 0.0f;
    const float delta = position < own.length ? ((const float*)p.delta)[statistics] : 0.0f;
    load_tile(s.q, qkv, head_of(own, columns, head), first, own.length);
    load_tile(s.d_o, (const KEY_X*)p.d_o, head_of(own, p.heads, head), first, own.length);
    float sum[OWN_D] = {};
    for (uint32_t k0 = first_key(first) / TILE * TILE; k0 <= first; k0 += TILE) {
        sync_block();
        load_tile(s.k, qkv, head_of(own, columns, p.heads + kv_head), k0, own.length);
        load_tile(s.v, qkv, head_of(own, columns, p.heads + p.kv_heads + kv_head), k0, own.length);
        sync_block();
        float score[OWN_SCORES], dprobability[OWN_SCORES];
        dots(s.q, s.k, row, lane, score);
        dots(s.d_o, s.v, row, lane, dprobability);
#pragma unroll
        for (uint32_t j = 0; j < OWN_SCORES; j++) {
            const uint32_t column = lane + j * ROW_THREADS, key = k0 + column;
            const bool visible = key <= position && key >= first_key(position) && position < own.length;
            const float probability = visible ? expf(score[j] * p.scale - lse) : 0.0f;
            s.score[row * SCORE_PITCH + column] = round_to<KEY_X>(probability * (dprobability[j] - delta));
        }
        sync_warp();
        add_weighted(sum, s.score, s.k, row, lane);
    }
    if (position < own.length)
        store_row((KEY_X*)p.dqkv, head_of(own, columns, head), position, lane, sum, p.scale);
}

// dk and dv of a tile of keys: dv = sum of p^T do, dk = scale * sum of ds^T q, over queries and heads.
__device__ __forceinline__ void key_tile(const attention_bwd_params& p, Shared s, uint32_t kv_head,
                                         const SequenceTile& own) {
    const uint32_t group = p.heads / p.kv_heads;
    const uint32_t columns = p.heads + 2 * p.kv_heads;
    const auto [row, lane, first, position] = thread_row(own.tiles - 1 - own.tile); // key's position
    const KEY_X* qkv = (const KEY_X*)p.qkv;
    const Head keys = head_of(own, columns, p.heads + kv_head);
    const Head values = head_of(own, columns, p.heads + p.kv_heads + kv_head);
    load_tile(s.k, qkv, keys, first, own.length);
    load_tile(s.v, qkv, values, first, own.length);
    float dk[OWN_D] = {}, dv[OWN_D] = {};
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const uint64_t statistics = uint64_t(head) * p.tokens + own.first;
        for (uint32_t q0 = first; q0 < own.length && q0 <= last_query(first + TILE - 1); q0 += TILE) {
            sync_block();
            load_tile(s.q, qkv, head_of(own, columns, head), q0, own.length);
            load_tile(s.d_o, (const KEY_X*)p.d_o, head_of(own, p.heads, head), q0, own.length);
            sync_block();
            float score[OWN_SCORES], dprobability[OWN_SCORES];
            dots(s.k, s.q, row, lane, score);
            dots(s.v, s.d_o, row, lane, dprobability);
#pragma unroll
            for (uint32_t j = 0; j < OWN_SCORES; j++) {
                const uint32_t query = q0 + lane + j * ROW_THREADS;
                const bool visible = position <= query && query <= last_query(position) && query < own.length;
                const float lse = visible ? ((const float*)p.lse)[statistics + query] : 0.0f;
                const float delta = visible ? ((const float*)p.delta)[statistics + query] : 0.0f;
                const float probability = visible ? expf(score[j] * p.scale - lse) : 0.0f;
                dprobability[j] = round_to<KEY_X>(probability * (dprobability[j] - delta));
                s.score[row * SCORE_PITCH + lane + j * ROW_THREADS] = round_to<KEY_X>(probability);
            }
            sync_warp();
            add_weighted(dv, s.score, s.d_o, row, lane);
            sync_warp();
#pragma unroll
            for (uint32_t j = 0; j < OWN_SCORES; j++) s.score[row * SCORE_PITCH + lane + j * ROW_THREADS] = dprobability[j];
            sync_warp();
            add_weighted(dk, s.score, s.q, row, lane);
        }
    }
    if (position >= own.length) return;
    store_row((KEY_X*)p.dqkv, keys, position, lane, dk, p.scale);
    store_row((KEY_X*)p.dqkv, values, position, lane, dv, 1.0f);
}

KERNEL(attention_bwd_params) {
    DYNAMIC_SHARED(float, shared);
    const Shared s = {shared, shared + TILE * PITCH, shared + 2 * TILE * PITCH, shared + 3 * TILE * PITCH,
                      shared + 4 * TILE * PITCH};
    const SequenceTile own = sequence_tile<TILE>(p.sequences, p.count, 1, blockIdx.x);
    if (own.length == 0) return;
    if (blockIdx.y < p.heads)
        query_tile(p, s, blockIdx.y, own);
    else
        key_tile(p, s, blockIdx.y - p.heads, own);
}
