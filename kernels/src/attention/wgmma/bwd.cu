// Causal grouped-query attention backward on wgmma, deterministic: every gradient has one owner. A warpgroup loops with
// 64 own rows (k, v or q, do) over tiles of the other side; p and ds stay in registers. Warpgroups of keys share their
// rows, copy tiles of queries independently and drift apart; those of queries share the tiles of keys.
// Bound: tensor cores. Recomputing the scores in both costs seven GEMMs where five and atomics would do.
// Source: Dao, "FlashAttention-2", 2023; Shah et al., "FlashAttention-3", 2024.
#include "attention/wgmma/tile.cuh"

enum : uint32_t {
    WARPGROUPS = VARIANT_THREADS / WARPGROUP,
    TILE = 64, // rows
    N = TILE / 8,
    STAGES = VARIANT_STAGES,
    TILE_BYTES = TILE * KEY_D * 2,
    PAIR_BYTES = 2 * TILE_BYTES,                 // own rows, or a stage
    WARPGROUP_BYTES = (1 + STAGES) * PAIR_BYTES, // own rows and stages
    STATISTICS_BYTES = STAGES * TILE * 2 * 4,    // log-sum-exp and delta of each stage's rows
};

// Starts copying log-sum-exp and delta of TILE positions of a head, whose first one is element `statistics`.
__device__ __forceinline__ void copy_statistics(const attention_bwd_params& p, uint32_t shared, uint64_t statistics,
                                                uint32_t first, uint32_t length) {
    const uint32_t thread = threadIdx.x % WARPGROUP, position = first + thread % TILE;
    const float* source = (const float*)(thread < TILE ? p.lse : p.delta) + statistics + position;
    cp_async4(shared + thread * 4, source, position < length);
}

// Adds up the warpgroups' results, in their order, through their stages; the first one holds the sum.
__device__ __forceinline__ void add_warpgroups(uint32_t shared, float (&acc)[CHUNKS][4], uint32_t offset) {
    const uint32_t warpgroup = threadIdx.x / WARPGROUP, at = offset + threadIdx.x % WARPGROUP * 16;
    if (warpgroup > 0) {
#pragma unroll
        for (uint32_t n = 0; n < CHUNKS; n++)
            store_shared(shared + warpgroup * WARPGROUP_BYTES + at + n * WARPGROUP * 16, acc[n]);
    }
    sync_block();
    if (warpgroup > 0) return;
#pragma unroll
    for (uint32_t other = 1; other < WARPGROUPS; other++)
#pragma unroll
        for (uint32_t n = 0; n < CHUNKS; n++) {
            float value[4];
            load_shared(value, shared + other * WARPGROUP_BYTES + at + n * WARPGROUP * 16);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) acc[n][e] += value[e];
        }
}

static_assert(STAGES == 2, "a stage and the other");

template <bool own_keys>
__device__ __forceinline__ void mainloop(const attention_bwd_params& p, uint32_t shared, uint32_t kv_head,
                                         const SequenceTile& sequence) {
    const uint32_t lane = threadIdx.x % WARP, warpgroup = warpgroup_index();
    const uint32_t group = p.heads / p.kv_heads, columns = p.heads + 2 * p.kv_heads;
    const uint32_t total_rows = sequence.length * group;
    const Rows<true> queries = rows_of<true>(p.qkv, sequence, columns, kv_head * group, group);
    const Rows<true> gradients = rows_of<true>(p.d_o, sequence, p.heads, kv_head * group, group);
    const Rows<false> keys = rows_of<false>(p.qkv, sequence, columns, p.heads + kv_head, 1);
    const Rows<false> values = rows_of<false>(p.qkv, sequence, columns, p.heads + p.kv_heads + kv_head, 1);
    const uint64_t statistics = uint64_t(kv_head * group) * p.tokens + sequence.first;
    const uint32_t tile = own_keys ? sequence.tiles - 1 - sequence.tile : sequence.tile;
    const uint32_t own_a = shared + warpgroup * (own_keys ? WARPGROUP_BYTES : PAIR_BYTES), own_b = own_a + TILE_BYTES;
    const uint32_t stages = own_keys ? own_a + PAIR_BYTES : shared + WARPGROUPS * PAIR_BYTES;
    const uint32_t stage_statistics = shared + WARPGROUPS * WARPGROUP_BYTES + warpgroup * STATISTICS_BYTES;
    const float scale_log2 = p.scale * LOG2_E;

    // Warpgroups of keys share the same 64 and take every WARPGROUPS-th of the tiles that see them, head after head.
    // Those of rows own 64 each and all take all tiles of keys up to the last that a row of the CTA sees.
    const uint32_t own = own_keys ? tile * TILE : (tile * WARPGROUPS + warpgroup) * TILE;
    const uint32_t own_end = own_keys ? sequence.length : total_rows;
    const auto seen_by = [&](uint32_t end) { return queries.position((end < total_rows ? end : total_rows) - 1) + 1; };
    const uint32_t visible_end = own < total_rows ? seen_by(own + TILE) : 0; // end of the keys visible to own rows
#ifdef KEY_WINDOW
    const uint32_t begin = own_keys ? own : first_key(queries.position(tile * WARPGROUPS * TILE)) / TILE * TILE;
#else
    const uint32_t begin = own_keys ? own : 0;
#endif
    const uint32_t heads = own_keys ? group : 1;
    const uint32_t seeing = last_query(own + TILE - 1) < sequence.length ? last_query(own + TILE - 1) + 1 : sequence.length;
    const uint32_t end =
        own_keys ? (seeing + TILE - 1) / TILE * TILE : seen_by((tile + 1) * WARPGROUPS * TILE);
    uint32_t next = begin, next_head = 0;
    const auto advance = [&](uint32_t tiles) {
        next += tiles * TILE;
        while (next >= end) next -= end - begin, next_head++;
    };
    if (own_keys) advance(warpgroup);

    if (own_keys) {
        copy_rows<TILE, WARPGROUP>(own_a, keys, own, sequence.length);
        copy_rows<TILE, WARPGROUP>(own_b, values, own, sequence.length);
    } else {
        copy_rows<TILE, WARPGROUP>(own_a, queries, own, total_rows);
        copy_rows<TILE, WARPGROUP>(own_b, gradients, own, total_rows);
    }
    const Rows<false> a_heads = rows_of<false>(p.qkv, sequence, columns, kv_head * group, 1);
    const Rows<false> b_heads = rows_of<false>(p.d_o, sequence, p.heads, kv_head * group, 1);
    const auto copy_next = [&](uint32_t stage) {
        const uint32_t a = stages + stage * PAIR_BYTES, b = a + TILE_BYTES;
        if (next_head < heads && own_keys) {
            copy_rows<TILE, WARPGROUP>(a, a_heads.head(next_head), next, sequence.length);
            copy_rows<TILE, WARPGROUP>(b, b_heads.head(next_head), next, sequence.length);
            copy_statistics(p, stage_statistics + stage * TILE * 8, statistics + uint64_t(next_head) * p.tokens, next,
                            sequence.length);
        } else if (next_head < heads) {
            copy_rows<TILE, VARIANT_THREADS>(a, keys, next, sequence.length);
            copy_rows<TILE, VARIANT_THREADS>(b, values, next, sequence.length);
        }
        cp_async_commit();
    };
    // Waits for the copies of the next stage; a barrier must follow for others' copies.
    const auto wait_next = [&] {
        cp_async_wait<0>();
        fence_proxy_async();
    };
    const auto sync_sharers = [&] { own_keys ? sync_warpgroup() : sync_block(); };
    copy_next(0);

    // Positions of this thread's two own rows: for keys the first query that sees them, for rows the last key they see.
    uint32_t bound[2];
    float shift[2], delta[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t row = own + threadIdx.x % WARPGROUP / WARP * 16 + lane / 4 + half * 8;
        const uint32_t position = queries.position(row), head = row - position * group;
        bound[half] = own_keys ? row : position;
        const uint64_t element = statistics + uint64_t(head) * p.tokens + position;
        const bool valid = !own_keys && row < total_rows;
        shift[half] = valid ? LOG2_E * ((const float*)p.lse)[element] : 0.0f;
        delta[half] = valid ? ((const float*)p.delta)[element] : 0.0f;
    }
    const uint32_t first_position = own_keys ? 0 : queries.position(own);
    const uint32_t last_position = own_keys ? 0 : queries.position(own + TILE - 1);

    float acc_a[CHUNKS][4] = {}, acc_b[CHUNKS][4] = {}; // ds^T q or ds k, and p^T do
    uint32_t stage = 0;
    wait_next();
    while (next_head < heads) {
        sync_sharers(); // this stage is there, and the other has been read
        const uint32_t other = next, a = stages + stage * PAIR_BYTES, b = a + TILE_BYTES;
        const uint32_t column_statistics = stage_statistics + stage * TILE * 8 + lane % 4 * 8;
        stage ^= 1;
        advance(own_keys ? WARPGROUPS : 1);
        if (!own_keys && (other >= visible_end || other + (TILE - 1) < first_key(first_position))) { // to this warpgroup
            copy_next(stage);
            wait_next();
            continue;
        }

        float s[N][4], dp[N][4];
        wgmma_fence();
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++)
            wgmma<false, false>(s, k_major<TILE>(own_a, step), k_major<TILE>(a, step), step > 0);
        wgmma_commit();
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++)
            wgmma<false, false>(dp, k_major<TILE>(own_b, step), k_major<TILE>(b, step), step > 0);
        wgmma_commit();
        copy_next(stage); // while the wgmma are in flight
        wgmma_wait<1>();
        wgmma_fence_operand(s);

        const bool edge = own_keys ? other + (TILE - 1) > last_query(own) : other < first_key(last_position);
        if (edge || (own_keys ? other < own + TILE : other + TILE > first_position + 1)) { // or the diagonal
#pragma unroll
            for (uint32_t n = 0; n < N; n++)
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) {
                    const uint32_t column = other + n * 8 + lane % 4 * 2 + e % 2;
                    if (own_keys ? column < bound[e / 2] : column > bound[e / 2]) s[n][e] = NEGATIVE_INFINITY;
                    if (own_keys ? column > last_query(bound[e / 2]) : column < first_key(bound[e / 2]))
                        s[n][e] = NEGATIVE_INFINITY;
                }
        }
#pragma unroll
        for (uint32_t n = 0; n < N; n++) {
            float column_shift[2];
            if (own_keys) load_shared(column_shift[0], column_shift[1], column_statistics + n * 32);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const float lse = own_keys ? LOG2_E * column_shift[e % 2] : shift[e / 2];
                s[n][e] = exp2_ftz(fmaf(s[n][e], scale_log2, -lse));
            }
        }
        wgmma_wait<0>();
        wgmma_fence_operand(dp);
        uint32_t probability[TILE / 16][4], ds[TILE / 16][4];
#pragma unroll
        for (uint32_t step = 0; step < TILE / 16; step++) {
#pragma unroll
            for (uint32_t n = 2 * step; n < 2 * step + 2; n++) {
                float column_delta[2];
                if (own_keys) load_shared(column_delta[0], column_delta[1], column_statistics + TILE * 4 + n * 32);
#pragma unroll
                for (uint32_t e = 0; e < 4; e++)
                    dp[n][e] = s[n][e] * (dp[n][e] - (own_keys ? column_delta[e % 2] : delta[e / 2]));
            }
            pack_a(probability[step], s, step);
            pack_a(ds[step], dp, step);
        }
        wgmma_fence();
#pragma unroll
        for (uint32_t step = 0; step < TILE / 16; step++) {
            if (own_keys) wgmma<true>(acc_b, probability[step], mn_major<TILE>(b, step), true);
            wgmma<true>(acc_a, ds[step], mn_major<TILE>(a, step), true);
        }
        wgmma_commit();
        wait_next();
        wgmma_wait<0>();
        wgmma_fence_operand(acc_a);
        wgmma_fence_operand(acc_b);
    }

    if (own_keys) {
        sync_warpgroup(); // the stages are free
        add_warpgroups(shared, acc_a, PAIR_BYTES);
        add_warpgroups(shared, acc_b, PAIR_BYTES + TILE * KEY_D * 4);
        if (warpgroup > 0) return;
        store_rows(rows_of<false>(p.dqkv, sequence, columns, p.heads + kv_head, 1), own, own_end, own_a, acc_a,
                   p.scale);
        store_rows(rows_of<false>(p.dqkv, sequence, columns, p.heads + p.kv_heads + kv_head, 1), own, own_end, own_b,
                   acc_b, 1.0f);
    } else {
        sync_warpgroup(); // own rows have been read
        store_rows(rows_of<true>(p.dqkv, sequence, columns, kv_head * group, group), own, own_end, own_a, acc_a,
                   p.scale);
    }
}

// CTAs in order of work: keys before queries, early keys and late queries first.
KERNEL(attention_bwd_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const uint32_t shared = (shared_address(memory) + 1023) / 1024 * 1024;
    const uint32_t kv_head = blockIdx.x % p.kv_heads, index = blockIdx.x / p.kv_heads;
    const uint32_t of_keys = p.tokens / TILE + p.count; // as variants.rs has it
    if (index < of_keys) {
        const SequenceTile sequence = sequence_tile<TILE>(p.sequences, p.count, 1, index);
        if (sequence.length > 0) mainloop<true>(p, shared, kv_head, sequence);
    } else {
        const uint32_t group = p.heads / p.kv_heads;
        const SequenceTile sequence =
            sequence_tile<WARPGROUPS * TILE>(p.sequences, p.count, group, index - of_keys);
        if (sequence.length > 0) mainloop<false>(p, shared, kv_head, sequence);
    }
}
