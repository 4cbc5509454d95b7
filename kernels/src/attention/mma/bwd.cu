// Causal grouped-query attention backward on tensor cores, deterministic: every gradient has one owner. CTAs of keys
// own dk and dv and loop over the queries of every head in their group; CTAs of queries own dq and loop over the keys.
// Both are one mainloop: a warp's own rows (k, v or q, do) against tiles of the other side; p and ds stay in registers.
// Bound: tensor cores. Recomputing the scores in both costs seven GEMMs where five and atomics would do.
// Source: Dao, "FlashAttention-2", 2023.
#include "attention/mma/tile.cuh"

enum : uint32_t {
    OWN = VARIANT_ROWS,                    // rows of a CTA
    ROWS = OWN / (VARIANT_THREADS / WARP), // rows per warp
    M = ROWS / 16,
    TILE = VARIANT_TILE, // rows of the other side, copied at a time
    PART = VARIANT_PART, // and multiplied at a time
    N = PART / 8,
    OWN_BYTES = OWN * PITCH,
    TILE_BYTES = TILE * PITCH,
    WIDE = KEY_D > 128, // both gradients of keys and values do not fit in registers: a CTA each
    // Two tiles; log-sum-exp and delta of queries, of wide heads in the padding of rows.
    STAGE_BYTES = 2 * TILE_BYTES + (WIDE ? 0 : 2 * TILE * 4),
    LSE_AT = WIDE ? KEY_D * 2 : 2 * TILE_BYTES,
    DELTA_AT = LSE_AT + (WIDE ? 4 : TILE * 4),
    STATISTIC_PITCH = WIDE ? PITCH : 4,
    OWN_IN_REGISTERS = M == 1 && KEY_D <= 64,
};

// Starts copying one stage: both tiles and, if they are queries, their statistics.
template <bool of_queries>
__device__ __forceinline__ void copy_stage(const attention_bwd_params& p, uint32_t stage, Head a, Head b,
                                           uint64_t statistics, uint32_t first, uint32_t length) {
    copy_rows<TILE>(stage, a, first, length);
    copy_rows<TILE>(stage + TILE_BYTES, b, first, length);
    if (of_queries) {
        const uint32_t row = threadIdx.x % TILE, position = first + row;
        const bool valid = position < length;
        const uint64_t element = statistics + (valid ? position : 0);
        if (threadIdx.x < TILE) cp_async4(stage + LSE_AT + row * STATISTIC_PITCH, (float*)p.lse + element, valid);
        else if (threadIdx.x < 2 * TILE)
            cp_async4(stage + DELTA_AT + row * STATISTIC_PITCH, (float*)p.delta + element, valid);
    }
    cp_async_commit();
}

// Sums `with_a`, the gradient of queries or keys, and `with_b`, that of values.
template <bool own_keys, bool with_a = true, bool with_b = own_keys>
__device__ __forceinline__ void mainloop(const attention_bwd_params& p, uint32_t shared, uint32_t column,
                                         const SequenceTile& sequence) {
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t group = p.heads / p.kv_heads, columns = p.heads + 2 * p.kv_heads;
    const uint32_t kv_head = own_keys ? column : column / group;
    const Head keys = head_of(p.qkv, sequence, columns, p.heads + kv_head);
    const Head values = head_of(p.qkv, sequence, columns, p.heads + p.kv_heads + kv_head);
    const uint32_t head = own_keys ? kv_head * group : column; // the first one
    const Head queries = head_of(p.qkv, sequence, columns, head);
    const Head gradients = head_of(p.d_o, sequence, p.heads, head);
    const uint64_t statistics = uint64_t(head) * p.tokens + sequence.first;
    const uint32_t tile = own_keys ? sequence.tiles - 1 - sequence.tile : sequence.tile;
    const uint32_t first = tile * OWN, own = first + warp * ROWS;
    const uint32_t own_a = shared + warp * ROWS * PITCH, own_b = own_a + OWN_BYTES, stages = shared + 2 * OWN_BYTES;
    const float scale_log2 = p.scale * LOG2_E;

    // The other rows: positions begin.. end of `repeat` heads.
    const uint32_t begin = own_keys ? first / TILE * TILE : first_key(first) / TILE * TILE;
    const uint32_t all = own_keys || first + OWN > sequence.length ? sequence.length : first + OWN;
    const uint32_t end = own_keys && last_query(first + OWN - 1) < all ? last_query(first + OWN - 1) + 1 : all;
    uint32_t heads_left = own_keys ? group : 1;

    copy_rows<OWN>(shared, own_keys ? keys : queries, first, sequence.length);
    if (with_a) copy_rows<OWN>(shared + OWN_BYTES, own_keys ? values : gradients, first, sequence.length);
    Head a = own_keys ? queries : keys, b = own_keys ? gradients : values;
    uint64_t next_statistics = statistics;
    copy_stage<own_keys>(p, stages, a, b, statistics, begin, sequence.length);

    float shift[M][2], delta[M][2]; // own queries' values
#pragma unroll
    for (uint32_t i = 0; i < M; i++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t query = own + i * 16 + lane / 4 + half * 8;
            const bool valid = !own_keys && query < sequence.length;
            shift[i][half] = valid ? LOG2_E * ((const float*)p.lse)[statistics + query] : 0.0f;
            delta[i][half] = valid ? ((const float*)p.delta)[statistics + query] : 0.0f;
        }
    float acc_a[M][CHUNKS][4] = {}, acc_b[with_b ? M : 1][CHUNKS][4] = {}; // ds^T q or ds k, and p^T do
    uint32_t all_a[OWN_IN_REGISTERS ? STEPS : 1][M][4], all_b[OWN_IN_REGISTERS ? STEPS : 1][M][4];

    uint32_t stage = stages, next = stages + STAGE_BYTES, next_position = begin;
    for (bool start = true; heads_left > 0; start = false) {
        const uint32_t t0 = next_position;
        next_position += TILE;
        if (next_position >= end) {
            next_position = begin;
            heads_left--;
            a.data += KEY_D, b.data += KEY_D, next_statistics += p.tokens;
        }
        cp_async_wait<0>();
        sync_block(); // this stage is there, and the other has been read
        if (heads_left > 0) copy_stage<own_keys>(p, next, a, b, next_statistics, next_position, sequence.length);
        if (OWN_IN_REGISTERS && start) {
#pragma unroll
            for (uint32_t step = 0; step < STEPS; step++)
#pragma unroll
                for (uint32_t i = 0; i < M; i++) {
                    load_a(all_a[OWN_IN_REGISTERS ? step : 0][i], own_a + i * 16 * PITCH, step);
                    load_a(all_b[OWN_IN_REGISTERS ? step : 0][i], own_b + i * 16 * PITCH, step);
                }
        }

#pragma unroll
        for (uint32_t part = 0; part < TILE; part += PART) {
            const uint32_t other = t0 + part; // its first position
            if (own_keys ? other + PART <= own : other >= own + ROWS) continue; // nothing visible to this warp
            if (own_keys ? other > last_query(own + ROWS - 1) : other + (PART - 1) < first_key(own)) continue;
            const uint32_t tile_a = stage + part * PITCH, tile_b = tile_a + TILE_BYTES;
            float s[M][N][4] = {}, dp[M][N][4] = {};
#pragma unroll
            for (uint32_t step = 0; step < STEPS; step++) {
                const uint32_t held = OWN_IN_REGISTERS ? step : 0;
                if (!OWN_IN_REGISTERS) {
#pragma unroll
                    for (uint32_t i = 0; i < M; i++) {
                        load_a(all_a[0][i], own_a + i * 16 * PITCH, step);
                        if (with_a) load_a(all_b[0][i], own_b + i * 16 * PITCH, step);
                    }
                }
#pragma unroll
                for (uint32_t n = 0; n < N; n += 2) {
                    uint32_t b0[4], b1[4];
                    load_b(b0, tile_a + n * 8 * PITCH, step);
                    if (with_a) load_b(b1, tile_b + n * 8 * PITCH, step);
#pragma unroll
                    for (uint32_t i = 0; i < M; i++) {
                        mma(s[i][n], all_a[held][i], b0[0], b0[1]);
                        mma(s[i][n + 1], all_a[held][i], b0[2], b0[3]);
                        if (!with_a) continue;
                        mma(dp[i][n], all_b[held][i], b1[0], b1[1]);
                        mma(dp[i][n + 1], all_b[held][i], b1[2], b1[3]);
                    }
                }
            }
            const bool diagonal = own_keys ? other < own + ROWS : other + PART > own + 1;
            const bool edge = own_keys ? other + (PART - 1) > last_query(own) : other < first_key(own + ROWS - 1);
#pragma unroll
            for (uint32_t n = 0; n < N; n++) {
                float column_shift[2], column_delta[2];
                if (own_keys && WIDE) {
#pragma unroll
                    for (uint32_t e = 0; e < 2; e++) {
                        const uint32_t row = part + n * 8 + lane % 4 * 2 + e;
                        load_shared(column_shift[e], column_delta[e], stage + LSE_AT + row * STATISTIC_PITCH);
                        column_shift[e] *= LOG2_E;
                    }
                } else if (own_keys) {
                    const uint32_t at = stage + 2 * TILE_BYTES + (part + n * 8 + lane % 4 * 2) * 4;
                    load_shared(column_shift[0], column_shift[1], at);
                    load_shared(column_delta[0], column_delta[1], at + TILE * 4);
                    column_shift[0] *= LOG2_E, column_shift[1] *= LOG2_E;
                }
#pragma unroll
                for (uint32_t i = 0; i < M; i++)
#pragma unroll
                    for (uint32_t e = 0; e < 4; e++) {
                        const float lse = own_keys ? column_shift[e % 2] : shift[i][e / 2];
                        float probability = exp2_ftz(fmaf(s[i][n][e], scale_log2, -lse));
                        if (diagonal || edge) {
                            const uint32_t column = other + n * 8 + lane % 4 * 2 + e % 2;
                            const uint32_t row = own + i * 16 + lane / 4 + e / 2 * 8;
                            if (own_keys ? row > column : column > row) probability = 0.0f;
                            if (own_keys ? column > last_query(row) : column < first_key(row)) probability = 0.0f;
                        }
                        s[i][n][e] = probability;
                        dp[i][n][e] = probability * (dp[i][n][e] - (own_keys ? column_delta[e % 2] : delta[i][e / 2]));
                    }
            }
#pragma unroll
            for (uint32_t step = 0; step < PART / 16; step++) {
                uint32_t ds[M][4], probability[M][4];
#pragma unroll
                for (uint32_t i = 0; i < M; i++) {
                    if (with_a) pack_a(ds[i], dp[i], step);
                    if (with_b) pack_a(probability[i], s[i], step);
                }
#pragma unroll
                for (uint32_t n = 0; n < CHUNKS; n += 2) {
                    uint32_t b0[4], b1[4];
                    if (with_a) load_b_transposed(b0, tile_a + step * 16 * PITCH, n / 2);
                    if (with_b) load_b_transposed(b1, tile_b + step * 16 * PITCH, n / 2);
#pragma unroll
                    for (uint32_t i = 0; i < M; i++) {
                        if (with_a) mma(acc_a[i][n], ds[i], b0[0], b0[1]);
                        if (with_a) mma(acc_a[i][n + 1], ds[i], b0[2], b0[3]);
                        if (!with_b) continue;
                        mma(acc_b[with_b ? i : 0][n], probability[i], b1[0], b1[1]);
                        mma(acc_b[with_b ? i : 0][n + 1], probability[i], b1[2], b1[3]);
                    }
                }
            }
        }
        const uint32_t read = stage;
        stage = next, next = read;
    }

    if (with_a)
        store_rows(head_of(p.dqkv, sequence, columns, own_keys ? p.heads + kv_head : head), own, sequence.length, own_a,
                   acc_a, p.scale);
    if (with_b)
        store_rows(head_of(p.dqkv, sequence, columns, p.heads + p.kv_heads + kv_head), own, sequence.length, own_b,
                   acc_b, 1.0f);
}

// CTAs in order of work: keys before queries, early keys and late queries first.
KERNEL(attention_bwd_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    constexpr uint32_t gradients = WIDE ? 2 : 1; // of keys and values: CTAs of each, or of both
    const uint32_t shared = shared_address(memory);
    const uint32_t of_keys = gridDim.x / (p.heads + gradients * p.kv_heads) * (gradients * p.kv_heads);
    const bool keys = blockIdx.x < of_keys;
    const uint32_t block = keys ? blockIdx.x : blockIdx.x - of_keys, heads = keys ? gradients * p.kv_heads : p.heads;
    const SequenceTile sequence = sequence_tile<OWN>(p.sequences, p.count, 1, block / heads);
    if (sequence.length == 0) return;
    const uint32_t column = block % heads;
    if (WIDE && keys && column >= p.kv_heads)
        mainloop<true, !WIDE>(p, shared, column - p.kv_heads, sequence);
    else if (keys)
        mainloop<true, true, !WIDE>(p, shared, column, sequence);
    else
        mainloop<false>(p, shared, column, sequence);
}
