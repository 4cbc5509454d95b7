// Gradients of the states of the gated delta rule on tensor cores, from a sequence's last chunk to its first. Columns
// of a state do not depend on each other: a CTA owns 64 of a value head's, whose gradients stay in registers as f32.
// Bound: latency, as each chunk waits for the one behind it. Keys and gradients of the next chunk are copied while one
// is multiplied, its other operands as soon as their space is free, and two CTAs share a multiprocessor.
// Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/mma/tile.cuh"
#include "vector.cuh"

enum : uint32_t {
    COLUMNS = 64, // of a state, that a CTA owns
    SLICES = HEAD / COLUMNS,
    N = COLUMNS / 8,
    WIDE = CHUNK * HEAD * 2, // bytes of a tile of queries or keys
    NARROW = CHUNK * CHUNK * 2,
    KEYS_AT = 0, // two stages
    GRADIENTS_AT = 2 * WIDE, // two stages
    QUERIES_AT = GRADIENTS_AT + 2 * NARROW,
    SCORES_AT = QUERIES_AT + WIDE,
    INVERSE_AT = SCORES_AT + NARROW,
    STATE_AT = INVERSE_AT + NARROW,
    FACTORS_AT = STATE_AT + HEAD * COLUMNS * 2,
};

// A value head and the first column of the CTA's slice.
struct Slice {
    uint32_t head, key_head, column;
};

// Starts copying what a chunk needs first: keys and gradients of the output.
__device__ __forceinline__ void copy_early(const delta_rule_state_bwd_params& p, uint32_t shared, uint32_t stage,
                                           Slice own, Chunk chunk) {
    const uint32_t stride = (2 * p.key_heads + p.value_heads) * HEAD;
    const bf16* keys = (const bf16*)p.qkv + uint64_t(chunk.first) * stride + (p.key_heads + own.key_head) * HEAD;
    const bf16* d_o = (const bf16*)p.d_o + (uint64_t(chunk.first) * p.value_heads + own.head) * HEAD + own.column;
    Tile<HEAD>{shared + KEYS_AT + stage * WIDE}.copy<CHUNK>(keys, stride, chunk.rows);
    Tile<COLUMNS>{shared + GRADIENTS_AT + stage * NARROW}.copy<CHUNK>(d_o, p.value_heads * HEAD, chunk.rows);
}

// Starts copying its other operands.
__device__ __forceinline__ void copy_late(const delta_rule_state_bwd_params& p, uint32_t shared, Slice own,
                                          Chunk chunk) {
    const uint32_t stride = (2 * p.key_heads + p.value_heads) * HEAD, square_stride = p.value_heads * CHUNK;
    const bf16* queries = (const bf16*)p.qkv + uint64_t(chunk.first) * stride + own.key_head * HEAD;
    const uint64_t square = uint64_t(chunk.first) * square_stride + own.head * CHUNK;
    Tile<CHUNK>{shared + SCORES_AT}.copy<CHUNK>((const bf16*)p.scores + square, square_stride, chunk.rows);
    Tile<CHUNK>{shared + INVERSE_AT}.copy<CHUNK>((const bf16*)p.inverse + square, square_stride, chunk.rows);
    Tile<HEAD>{shared + QUERIES_AT}.copy<CHUNK>(queries, stride, chunk.rows);
}

// Factors of a token's accumulators: of what its key takes from the state behind the chunk, of what its query and its
// key add to the gradient of the state before it.
struct Factors {
    float behind, query, key;
};

// Zeros for rows behind the chunk's last.
__device__ __forceinline__ Factors factors_of(const delta_rule_state_bwd_params& p, Slice own, Chunk chunk, float last,
                                              uint32_t row) {
    if (row >= chunk.rows) return {};
    const uint64_t token = chunk.first + row, gate = token * p.value_heads + own.head;
    const float* scale = (const float*)p.scale + token * 2 * p.key_heads + own.key_head;
    const float decay = LOG2_E * ((const float*)p.decay)[gate], beta = ((const float*)p.beta)[gate];
    const float grown = exp2_ftz(decay), of_key = scale[p.key_heads];
    return {exp2_ftz(LOG2_E * last - decay) * of_key, grown * scale[0], -(beta * grown * of_key)};
}

// Multiplies the rows of a tile by factors, and rounds.
__device__ __forceinline__ void scale_rows(Tile<COLUMNS> tile, const float* factors) {
#pragma unroll
    for (uint32_t i = 0; i < CHUNK * N / VARIANT_THREADS; i++) {
        const uint32_t n = threadIdx.x + i * VARIANT_THREADS, row = n / N, at = tile.at(row, n % N);
        uint4_t pairs = load_shared(at);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            pairs.v[j] =
                pack_bf16x2(unpack_bf16x2(pairs.v[j], 0) * factors[row], unpack_bf16x2(pairs.v[j], 1) * factors[row]);
        store_shared(at, pairs);
    }
}

// Stores a warp's 16 rows, times factors of rows `row_of(0)` and `row_of(2)`.
__device__ __forceinline__ void store_rows(Tile<COLUMNS> tile, uint32_t row, const float (&acc)[N][4], float low,
                                           float high) {
#pragma unroll
    for (uint32_t n = 0; n < N; n++) {
        tile.store(row + row_of(0), 8 * n + column_of(0), acc[n][0] * low, acc[n][1] * low);
        tile.store(row + row_of(2), 8 * n + column_of(0), acc[n][2] * high, acc[n][3] * high);
    }
}

KERNEL(delta_rule_state_bwd_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const uint32_t index = blockIdx.x / SLICES, warp = threadIdx.x / WARP;
    const Sequence sequence = ((const Sequence*)p.sequences)[index / p.value_heads];
    if (sequence.length == 0) return;
    const uint32_t head = index % p.value_heads;
    const Slice own = {head, head / (p.value_heads / p.key_heads), blockIdx.x % SLICES * COLUMNS};

    const uint32_t shared = shared_address(memory), row = 16 * warp;
    const Tile<HEAD> queries = {shared + QUERIES_AT};
    const Tile<CHUNK> scores = {shared + SCORES_AT}, inverse = {shared + INVERSE_AT};
    const Tile<COLUMNS> state = {shared + STATE_AT};
    // They follow what is multiplied by then.
    const Tile<COLUMNS> dv_new = {shared + SCORES_AT}, dvb = dv_new, taken = {shared + INVERSE_AT};
    float(*factors)[CHUNK] = (float(*)[CHUNK])(memory + FACTORS_AT);

    uint32_t left = (sequence.length + CHUNK - 1) / CHUNK - 1, stage = 0;
    copy_early(p, shared, stage, own, chunk_of(sequence, left));
    cp_async_commit();
    copy_late(p, shared, own, chunk_of(sequence, left));
    cp_async_commit();
    float dstate[2][N][4] = {}; // 32 rows of a warp
    for (;; left--, stage ^= 1) {
        const Chunk chunk = chunk_of(sequence, left);
        const Tile<HEAD> keys = {shared + KEYS_AT + stage * WIDE};
        const Tile<COLUMNS> d_o = {shared + GRADIENTS_AT + stage * NARROW};
        cp_async_wait<1>();
        sync_block(); // keys and gradients are there, and the state
        if (left > 0) copy_early(p, shared, stage ^ 1, own, chunk_of(sequence, left - 1));
        cp_async_commit();
        const float last = ((const float*)p.decay)[uint64_t(chunk.first + chunk.rows - 1) * p.value_heads + head];
        Factors of_row = {};
        if (threadIdx.x < CHUNK) of_row = factors_of(p, own, chunk, last, threadIdx.x);

        float acc[N][4] = {};
        if (chunk.has_behind) {
            const uint64_t slot = uint64_t(chunk.behind()) * p.value_heads + head;
            state.write<HEAD>((bf16*)p.dstates + slot * HEAD * HEAD + own.column, HEAD, HEAD);
            multiply(acc, HEAD / 16, [&](uint32_t(&a)[4], uint32_t step) { keys.load_a(a, row, step); },
                     [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { state.load_b(b, 16 * step, 2 * pair); });
        }
        if (threadIdx.x < CHUNK) {
            factors[0][threadIdx.x] = of_row.behind;
            factors[1][threadIdx.x] = of_row.query;
            factors[2][threadIdx.x] = of_row.key;
        }
        cp_async_wait<1>();
        sync_block(); // all operands are there
#pragma unroll
        for (uint32_t n = 0; n < N; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) acc[n][i] *= factors[0][row + row_of(i)];
        multiply(acc, CHUNK / 16,
                 [&](uint32_t(&a)[4], uint32_t step) { scores.load_a_transposed(a, 16 * step, 2 * warp); },
                 [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { d_o.load_b(b, 16 * step, 2 * pair); });
        sync_block(); // scores have been read
        store_rows(dv_new, row, acc, 1.0f, 1.0f);
        if (chunk.has_before) scale_rows(d_o, factors[1]);
        sync_block();

        float x[N][4] = {};
        multiply(x, CHUNK / 16,
                 [&](uint32_t(&a)[4], uint32_t step) { inverse.load_a_transposed(a, 16 * step, 2 * warp); },
                 [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { dv_new.load_b(b, 16 * step, 2 * pair); });
        sync_block(); // so have the inverse and dv_new
        store_rows(dvb, row, x, 1.0f, 1.0f);
        store_rows(taken, row, x, factors[2][row + row_of(0)], factors[2][row + row_of(2)]);
        sync_block();
        const uint64_t first = (uint64_t(chunk.first) * p.value_heads + head) * HEAD;
        dvb.write<CHUNK>((bf16*)p.dvb + first + own.column, p.value_heads * HEAD, chunk.rows);
        if (!chunk.has_before) break; // nothing reads the gradient of zeros

        const float whole = exp2_ftz(LOG2_E * last);
#pragma unroll
        for (uint32_t m = 0; m < 2; m++)
#pragma unroll
            for (uint32_t n = 0; n < N; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) dstate[m][n][i] *= whole;
        const uint32_t chunks = 4 * warp; // of the warp's first row
        multiply(dstate, CHUNK / 16,
                 [&](uint32_t(&a)[4], uint32_t step, uint32_t m) {
                     queries.load_a_transposed(a, 16 * step, chunks + 2 * m);
                 },
                 [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { d_o.load_b(b, 16 * step, 2 * pair); });
        multiply(dstate, CHUNK / 16,
                 [&](uint32_t(&a)[4], uint32_t step, uint32_t m) {
                     keys.load_a_transposed(a, 16 * step, chunks + 2 * m);
                 },
                 [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { taken.load_b(b, 16 * step, 2 * pair); });
        sync_block(); // all operands have been read
        copy_late(p, shared, own, chunk_of(sequence, left - 1));
        cp_async_commit();
#pragma unroll
        for (uint32_t m = 0; m < 2; m++) store_rows(state, 2 * row + 16 * m, dstate[m], 1.0f, 1.0f);
    }
}
