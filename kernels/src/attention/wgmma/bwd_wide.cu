// Causal grouped-query attention backward on wgmma for wide heads, of which a warpgroup's registers hold one gradient:
// a CTA owns rows of queries, of keys or of values, 64 per warpgroup, and loops over tiles of the other side. All
// warpgroups share a tile, of which one half is read early, for scores or their gradients, and one late, for the
// result: the next late half arrives meanwhile, and the next early half when the scores are there.
// Bound: tensor cores. Recomputing the scores for each gradient costs eight GEMMs where five and atomics would do.
// Source: Dao, "FlashAttention-2", 2023; Shah et al., "FlashAttention-3", 2024.
#include "attention/wgmma/tile.cuh"

enum : uint32_t {
    WARPGROUPS = VARIANT_THREADS / WARPGROUP,
    TILE = 64, // rows
    N = TILE / 8,
    OWN = WARPGROUPS * TILE, // rows of a CTA
    TILE_BYTES = TILE * KEY_D * 2,
    STATISTICS_BYTES = TILE * 2 * 4, // log-sum-exp and delta of a tile's rows
};
enum class Of { QUERIES, KEYS, VALUES };

template <Of of>
__device__ __forceinline__ void mainloop(const attention_bwd_params& p, uint32_t shared, uint32_t kv_head,
                                         const SequenceTile& sequence) {
    constexpr bool own_keys = of != Of::QUERIES, of_values = of == Of::VALUES;
    const uint32_t lane = threadIdx.x % WARP, warpgroup = warpgroup_index();
    const uint32_t group = p.heads / p.kv_heads, columns = p.heads + 2 * p.kv_heads;
    const uint32_t total_rows = sequence.length * (own_keys ? 1 : group);
    const Rows<true> own_queries = rows_of<true>(p.qkv, sequence, columns, kv_head * group, group);
    const Rows<true> own_gradients = rows_of<true>(p.d_o, sequence, p.heads, kv_head * group, group);
    const Rows<false> queries = rows_of<false>(p.qkv, sequence, columns, kv_head * group, 1); // the first head's
    const Rows<false> gradients = rows_of<false>(p.d_o, sequence, p.heads, kv_head * group, 1);
    const Rows<false> keys = rows_of<false>(p.qkv, sequence, columns, p.heads + kv_head, 1);
    const Rows<false> values = rows_of<false>(p.qkv, sequence, columns, p.heads + p.kv_heads + kv_head, 1);
    const uint64_t statistics = uint64_t(kv_head * group) * p.tokens + sequence.first;
    const uint32_t first = (own_keys ? sequence.tiles - 1 - sequence.tile : sequence.tile) * OWN;
    const uint32_t own = first + warpgroup * TILE, own_a = shared + warpgroup * 2 * TILE_BYTES, own_b = own_a + TILE_BYTES;
    const uint32_t early = shared + WARPGROUPS * 2 * TILE_BYTES, lates = early + TILE_BYTES;
    const uint32_t all_statistics = lates + 2 * TILE_BYTES;
    const float scale_log2 = p.scale * LOG2_E;

    // The other side's tiles from `begin` to `end`: those that a row of the CTA sees, or that see one.
    const auto position = [&](uint32_t row) { return own_keys ? row : own_queries.position(row); };
    const uint32_t begin = own_keys ? first : first_key(position(first)) / TILE * TILE;
    const uint32_t last_row = position((first + OWN < total_rows ? first + OWN : total_rows) - 1);
    const uint32_t last = own_keys ? last_query(last_row) : last_row, heads = own_keys ? group : 1;
    const uint32_t end = ((last < sequence.length ? last + 1 : sequence.length) + TILE - 1) / TILE * TILE;

    if (own_keys) {
        copy_rows<TILE, WARPGROUP>(own_a, keys, own, total_rows);
        if (!of_values) copy_rows<TILE, WARPGROUP>(own_b, values, own, total_rows);
    } else {
        copy_rows<TILE, WARPGROUP>(own_a, own_queries, own, total_rows);
        copy_rows<TILE, WARPGROUP>(own_b, own_gradients, own, total_rows);
    }
    uint32_t next = begin, next_head = 0;
    const auto copy_early = [&] {
        if (next_head < heads) {
            const Rows<false> rows = own_keys ? (of_values ? queries : gradients).head(next_head) : values;
            copy_rows<TILE, VARIANT_THREADS>(early, rows, next, sequence.length);
        }
        cp_async_commit();
    };
    const auto copy_late = [&](uint32_t stage) {
        if (next_head < heads) {
            const Rows<false> rows = own_keys ? (of_values ? gradients : queries).head(next_head) : keys;
            copy_rows<TILE, VARIANT_THREADS>(lates + stage * TILE_BYTES, rows, next, sequence.length);
            if (own_keys && threadIdx.x < 2 * TILE) {
                const uint32_t at = next + threadIdx.x % TILE;
                const uint64_t element = statistics + uint64_t(next_head) * p.tokens + at;
                cp_async4(all_statistics + stage * STATISTICS_BYTES + threadIdx.x * 4,
                          (const float*)(threadIdx.x < TILE ? p.lse : p.delta) + element, at < sequence.length);
            }
        }
        cp_async_commit();
    };
    copy_early();
    copy_late(0);

    // Of this thread's two own rows: their positions, and of queries the statistics.
    uint32_t own_position[2];
    float shift[2], delta[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t row = own + threadIdx.x % WARPGROUP / WARP * 16 + lane / 4 + half * 8;
        own_position[half] = position(row);
        const uint64_t element = statistics + uint64_t(row - own_position[half] * group) * p.tokens + own_position[half];
        const bool valid = !own_keys && row < total_rows;
        shift[half] = valid ? LOG2_E * ((const float*)p.lse)[element] : 0.0f;
        delta[half] = valid ? ((const float*)p.delta)[element] : 0.0f;
    }
    const uint32_t first_position = position(own), last_position = position(own + TILE - 1);

    float acc[CHUNKS][4] = {};
    for (uint32_t stage = 0; next_head < heads; stage ^= 1) {
        cp_async_wait<0>();
        fence_proxy_async();
        sync_block(); // this tile is there, and the other late half has been read
        const uint32_t other = next, late = lates + stage * TILE_BYTES;
        const uint32_t column_statistics = all_statistics + stage * STATISTICS_BYTES + lane % 4 * 8;
        next += TILE;
        if (next == end) next = begin, next_head++;
        copy_late(stage ^ 1);
        const bool visible = own_keys ? other + (TILE - 1) >= own && other <= last_query(own + TILE - 1)
                                      : other <= last_position && other + (TILE - 1) >= first_key(first_position);

        float s[N][4], dp[N][4];
        if (visible) {
            wgmma_fence();
#pragma unroll
            for (uint32_t step = 0; step < STEPS; step++)
                wgmma<false, false>(s, k_major<TILE>(own_a, step), k_major<TILE>(of_values ? early : late, step), step > 0);
            if (!of_values) {
#pragma unroll
                for (uint32_t step = 0; step < STEPS; step++)
                    wgmma<false, false>(dp, k_major<TILE>(own_b, step), k_major<TILE>(early, step), step > 0);
            }
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_fence_operand(s);
            if (!of_values) wgmma_fence_operand(dp);
        }
        sync_block(); // the early half has been read
        copy_early();
        if (!visible) continue;

        const bool diagonal = own_keys ? other < own + TILE : other + TILE > first_position + 1;
        const bool edge = own_keys ? other + (TILE - 1) > last_query(own) : other < first_key(last_position);
        if (diagonal || edge) {
#pragma unroll
            for (uint32_t n = 0; n < N; n++)
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) {
                    const uint32_t column = other + n * 8 + lane % 4 * 2 + e % 2, row = own_position[e / 2];
                    const bool seen = own_keys ? column >= row && column <= last_query(row)
                                               : column <= row && column >= first_key(row);
                    if (!seen) s[n][e] = NEGATIVE_INFINITY;
                }
        }
#pragma unroll
        for (uint32_t n = 0; n < N; n++) {
            float column_shift[2], column_delta[2];
            if (own_keys) load_shared(column_shift[0], column_shift[1], column_statistics + n * 32);
            if (own_keys && !of_values)
                load_shared(column_delta[0], column_delta[1], column_statistics + TILE * 4 + n * 32);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const float lse = own_keys ? LOG2_E * column_shift[e % 2] : shift[e / 2];
                s[n][e] = exp2_ftz(fmaf(s[n][e], scale_log2, -lse));
                if (!of_values) s[n][e] *= dp[n][e] - (own_keys ? column_delta[e % 2] : delta[e / 2]);
            }
        }
        uint32_t a[TILE / 16][4];
#pragma unroll
        for (uint32_t step = 0; step < TILE / 16; step++) pack_a(a[step], s, step);
        wgmma_fence();
#pragma unroll
        for (uint32_t step = 0; step < TILE / 16; step++) wgmma<true>(acc, a[step], mn_major<TILE>(late, step), true);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_fence_operand(acc);
    }

    sync_warpgroup(); // own rows have been read
    const float factor = of_values ? 1.0f : p.scale;
    if (own_keys)
        store_rows(rows_of<false>(p.dqkv, sequence, columns, p.heads + (of_values ? p.kv_heads : 0) + kv_head, 1), own,
                   total_rows, own_a, acc, factor);
    else
        store_rows(rows_of<true>(p.dqkv, sequence, columns, kv_head * group, group), own, total_rows, own_a, acc, factor);
}

// CTAs in order of work: keys and values before queries, early keys and late queries first.
KERNEL(attention_bwd_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const uint32_t shared = (shared_address(memory) + 1023) / 1024 * 1024;
    const uint32_t kv_head = blockIdx.x % p.kv_heads, index = blockIdx.x / p.kv_heads;
    const uint32_t of_keys = p.tokens / OWN + p.count; // as variants.rs has it
    if (index < 2 * of_keys) {
        const SequenceTile sequence = sequence_tile<OWN>(p.sequences, p.count, 1, index / 2);
        if (sequence.length == 0) return;
        if (index % 2 == 0)
            mainloop<Of::KEYS>(p, shared, kv_head, sequence);
        else
            mainloop<Of::VALUES>(p, shared, kv_head, sequence);
    } else {
        const SequenceTile sequence =
            sequence_tile<OWN>(p.sequences, p.count, p.heads / p.kv_heads, index - 2 * of_keys);
        if (sequence.length > 0) mainloop<Of::QUERIES>(p, shared, kv_head, sequence);
    }
}
