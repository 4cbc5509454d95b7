// Gradients of queries, keys, values and gates of the gated delta rule on tensor cores. A CTA owns a chunk of a key
// head, whose gradients stay in registers as f32 over its value heads, in order. States pass through shared memory in
// halves of 64 rows, whose space the triangles take afterwards: raw queries and keys are operands, and their factors,
// decays and step sizes are applied to accumulators.
// Bound: latency of copies. Two CTAs share a multiprocessor, where registers and shared memory hold them.
// Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/gates_bwd.cuh"
#include "delta_rule/mma/tile.cuh"

enum : uint32_t {
    WIDE = CHUNK * HEAD * 2, // bytes of a tile of heads, or of half a state
    NARROW = CHUNK * CHUNK * 2,
    ROW_WARPS = CHUNK / 16,
    PARTS = VARIANT_THREADS / WARP / ROW_WARPS, // warps that share rows
    N = CHUNK / PARTS / 8,                      // a warp's columns of 64, in eights
    VECTORS = CHUNK * HEAD / 8 / VARIANT_THREADS, // of a tile, a thread
    VALUES_AT = 6 * WIDE,
};

// A warp's 16 rows, and its columns: from 8 * `chunk` of a square, and of each half of a head. Each phase makes its
// own, and addresses from it: registers do not hold those of all phases.
struct Place {
    uint32_t row, chunk;

    __device__ __forceinline__ Place() {
        const uint32_t warp = opaque(threadIdx.x / WARP);
        row = 16 * (warp % ROW_WARPS), chunk = N * (warp / ROW_WARPS);
    }

    // Columns of {n} of both halves.
    __device__ __forceinline__ uint32_t column(uint32_t n) const { return n / N * CHUNK + 8 * (chunk + n % N); }
    // Chunk of a pair of them.
    __device__ __forceinline__ uint32_t chunk_of(uint32_t pair) const { return column(2 * pair) / 8; }
};

struct Shared {
    Tile<HEAD> queries, keys, d_o, v_new, dvb, state;
    Tile<CHUNK> of_columns, of_rows; // triangles in the state's place, times factors of their columns or rows
    float *decay, *beta, *query, *key; // of tokens; 0 behind the last
    float *values, *dlog, *dbeta;
    // Sums of warps, in the place of v_new.
    float (*dlogs)[CHUNK], (*dbetas)[CHUNK], (*columns)[CHUNK], *lasts;
    // Of queries and keys times their gradients, in the place of dvb.
    float (*query_dots)[CHUNK], (*key_dots)[CHUNK];

    __device__ __forceinline__ explicit Shared(unsigned char* memory) {
        const uint32_t shared = shared_address(memory);
        queries = {shared}, keys = {shared + WIDE}, d_o = {shared + 2 * WIDE}, v_new = {shared + 3 * WIDE};
        dvb = {shared + 4 * WIDE}, state = {shared + 5 * WIDE};
        of_columns = {shared + 5 * WIDE}, of_rows = {shared + 5 * WIDE + NARROW};
        decay = (float*)(memory + VALUES_AT), beta = decay + CHUNK, query = beta + CHUNK, key = query + CHUNK;
        values = key + CHUNK, dlog = values + CHUNK, dbeta = dlog + CHUNK;
        dlogs = (float(*)[CHUNK])(memory + 3 * WIDE), dbetas = dlogs + PARTS, columns = dbetas + PARTS;
        lasts = (float*)(columns + ROW_WARPS);
        query_dots = (float(*)[CHUNK])(memory + 4 * WIDE), key_dots = query_dots + PARTS;
    }

    // e^(G_i - G_j).
    __device__ __forceinline__ float between(uint32_t i, uint32_t j) const {
        return exp2_ftz(LOG2_E * (decay[i] - decay[j]));
    }
};

// A thread's share of the gradients of decays' logs and of step sizes: of its rows `row_of(0)` and `row_of(2)`, and of
// the chunk's last token.
struct Sums {
    float dlog[2], dbeta[2], last;
};

// Operands of a value head, from the chunk's first token on.
struct Head {
    const bf16 *values, *scores, *v_new, *d_o, *dvb, *state, *dstate;
};

// Each phase computes them again, likewise.
__device__ __forceinline__ Head head_of(const delta_rule_bwd_params& p, Chunk chunk, uint32_t head) {
    head = opaque(head), chunk.first = opaque(chunk.first);
    const uint64_t token = chunk.first, row = token * p.value_heads + head;
    const uint64_t before = chunk.has_before ? chunk.before() : 0, behind = chunk.has_behind ? chunk.behind() : 0;
    const bf16* qkv = (const bf16*)p.qkv + token * (2 * p.key_heads + p.value_heads) * HEAD;
    return {qkv + (2 * p.key_heads + head) * HEAD, (const bf16*)p.scores + row * CHUNK,
            (const bf16*)p.v_new + row * HEAD,
            (const bf16*)p.d_o + row * HEAD, (const bf16*)p.dvb + row * HEAD,
            (const bf16*)p.states + (before * p.value_heads + head) * HEAD * HEAD,
            (const bf16*)p.dstates + (behind * p.value_heads + head) * HEAD * HEAD};
}

// Places of a key head's queries and keys from the chunk's first token on.
struct Rows {
    uint64_t queries, keys;
    uint32_t stride;
};

__device__ __forceinline__ Rows rows_of(const delta_rule_bwd_params& p, Chunk chunk) {
    const uint32_t stride = (2 * p.key_heads + p.value_heads) * HEAD;
    const uint64_t queries = uint64_t(chunk.first) * stride + opaque(blockIdx.x) % p.key_heads * HEAD;
    return {queries, queries + p.key_heads * HEAD, stride};
}

// Copies half a state, once the place has been read.
__device__ __forceinline__ void copy_half(const Shared& s, const bf16* state, uint32_t half) {
    sync_block();
    s.state.copy<CHUNK>(state + half * CHUNK * HEAD, HEAD, CHUNK);
    cp_async_commit();
}

// acc += a b^T, of a warp's rows and columns.
template <uint32_t n>
__device__ __forceinline__ void multiply_rows(float (&acc)[n][4], Tile<HEAD> a, Tile<HEAD> b, Place own) {
#pragma unroll 2
    for (uint32_t i = 0; i < HEAD / 16; i++)
        multiply(acc, 1, [&](uint32_t(&r)[4], uint32_t) { a.load_a(r, own.row, i); },
                 [&](uint32_t(&r)[4], uint32_t, uint32_t pair) {
                     b.load_b_transposed(r, 8 * own.chunk + 16 * pair, i);
                 });
}

// Gradients of values, and what they give to step sizes. Sixteen threads share a row.
__device__ __forceinline__ void values(const delta_rule_bwd_params& p, const Shared& s, const Head& own,
                                       uint32_t rows) {
    const uint32_t stride = (2 * p.key_heads + p.value_heads) * HEAD;
    bf16* out = (bf16*)p.dqkv + (own.values - (const bf16*)p.qkv);
    const uint32_t first = opaque(threadIdx.x) / 16, chunk = threadIdx.x % 16;
    const auto place = [&](uint32_t row) { return uint64_t(row < rows ? row : 0) * stride; };
    vector<bf16, 8> value[VECTORS]; // all before the first store, which the compiler moves no load across
#pragma unroll
    for (uint32_t i = 0; i < VECTORS; i++)
        value[i] = load_vector<8>(own.values + place(first + i * (VARIANT_THREADS / 16)), chunk);
#pragma unroll
    for (uint32_t i = 0; i < VECTORS; i++) {
        const uint32_t row = first + i * (VARIANT_THREADS / 16);
        const uint4_t pairs = load_shared(s.dvb.at(row, chunk));
        float sum = 0.0f, dv[8];
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            const float dvb = unpack_bf16x2(pairs.v[j / 2], j);
            sum = fmaf(dvb, value[i][j], sum);
            dv[j] = s.beta[row] * dvb;
        }
        sum = group_sum<16>(sum);
        if (row < rows) store_vector(out + place(row), chunk, dv);
        if (chunk == 0) s.values[row] = sum;
    }
}

// Adds what half the state before the chunk gives: to 16 columns at a time, as registers are few.
__device__ __forceinline__ void add_before(float (&dq)[2 * N][4], float (&dk)[2 * N][4], Sums& sums, const Shared& s,
                                           uint32_t half) {
    float of_query[2] = {}, of_key[2] = {};
#pragma unroll
    for (uint32_t pair = 0; pair < N / 2; pair++) {
        const Place own;
        float read[2][4] = {}, taken[2][4] = {};
#pragma unroll 2
        for (uint32_t step = 0; step < HEAD / 16; step++) {
            uint32_t a[2][4], b[4];
            s.d_o.load_a(a[0], own.row, step);
            s.dvb.load_a(a[1], own.row, step);
            s.state.load_b_transposed(b, 8 * own.chunk + 16 * pair, step);
            mma(read[0], a[0], b[0], b[1]);
            mma(read[1], a[0], b[2], b[3]);
            mma(taken[0], a[1], b[0], b[1]);
            mma(taken[1], a[1], b[2], b[3]);
        }
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t row = own.row + row_of(2 * j);
            const float grown = exp2_ftz(LOG2_E * s.decay[row]), shrunk = -s.beta[row] * grown;
#pragma unroll
            for (uint32_t n = 0; n < 2; n++) {
                const uint32_t all = half * N + 2 * pair + n, column = own.column(all) + column_of(0);
                const uint32_t queries = s.queries.load(row, column), keys = s.keys.load(row, column);
#pragma unroll
                for (uint32_t i = 2 * j; i < 2 * j + 2; i++) {
                    of_query[j] = fmaf(read[n][i], unpack_bf16x2(queries, i), of_query[j]);
                    of_key[j] = fmaf(-taken[n][i], unpack_bf16x2(keys, i), of_key[j]);
                    dq[all][i] = fmaf(grown, read[n][i], dq[all][i]);
                    dk[all][i] = fmaf(shrunk, taken[n][i], dk[all][i]);
                }
            }
        }
    }
    const Place own;
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t row = own.row + row_of(2 * j);
        const float grown = exp2_ftz(LOG2_E * s.decay[row]), share = grown * s.key[row] * of_key[j];
        sums.dlog[j] += grown * s.query[row] * of_query[j] + s.beta[row] * share;
        sums.dbeta[j] += share;
    }
}

// Adds what half the state behind the chunk gives.
__device__ __forceinline__ void add_behind(float (&dk)[2 * N][4], Sums& sums, const Shared& s, uint32_t half,
                                           float last) {
    const Place own;
    float written[N][4] = {};
    multiply_rows(written, s.v_new, s.state, own);
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t row = own.row + row_of(2 * j);
        const float behind = exp2_ftz(LOG2_E * (last - s.decay[row]));
        float moved = 0.0f;
#pragma unroll
        for (uint32_t n = 0; n < N; n++) {
            const uint32_t all = half * N + n, keys = s.keys.load(row, own.column(all) + column_of(0));
#pragma unroll
            for (uint32_t e = 0; e < 2; e++) {
                moved = fmaf(written[n][2 * j + e], unpack_bf16x2(keys, e), moved);
                dk[all][2 * j + e] = fmaf(behind, written[n][2 * j + e], dk[all][2 * j + e]);
            }
        }
        moved *= behind * s.key[row];
        sums.dlog[j] -= moved;
        sums.last += moved;
    }
}

// Adds what both states give, and writes the gradients of values while a half is copied.
__device__ __forceinline__ void add_states(const delta_rule_bwd_params& p, float (&dq)[2 * N][4], float (&dk)[2 * N][4],
                                           Sums& sums, const Shared& s, Chunk chunk, uint32_t head) {
    if (chunk.has_before) {
        add_before(dq, dk, sums, s, 0);
        copy_half(s, head_of(p, chunk, head).state, 1);
    }
    values(p, s, head_of(p, chunk, head), chunk.rows);
    if (chunk.has_before) {
        cp_async_wait<0>();
        sync_block();
        add_before(dq, dk, sums, s, 1);
    }
    if (!chunk.has_behind) return;
    const Head of_head = head_of(p, chunk, head);
    const float last = s.decay[chunk.rows - 1], whole = exp2_ftz(LOG2_E * last);
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        copy_half(s, of_head.dstate, half);
        vector<bf16, 8> before[VECTORS] = {};
        if (chunk.has_before) {
#pragma unroll
            for (uint32_t i = 0; i < VECTORS; i++)
                before[i] = load_vector<8>(of_head.state + half * CHUNK * HEAD, threadIdx.x + i * VARIANT_THREADS);
        }
        cp_async_wait<0>();
        sync_block();
        float share = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < VECTORS; i++) {
            const uint32_t n = threadIdx.x + i * VARIANT_THREADS;
            const uint4_t pairs = load_shared(s.state.at(n / 16, n % 16));
#pragma unroll
            for (uint32_t j = 0; j < 8; j++) share = fmaf(before[i][j], unpack_bf16x2(pairs.v[j / 2], j), share);
        }
        sums.last += whole * share;
        add_behind(dk, sums, s, half, last);
    }
}

// Leaves the gradient of the scores, times their decays.
__device__ __forceinline__ void scores(const delta_rule_bwd_params& p, Sums& sums, float (&columns)[N][2],
                                       const Shared& s,
                                       Chunk chunk, uint32_t head) {
    const bf16* scores = head_of(p, chunk, head).scores;
    const Place own;
    const bool above = 8 * own.chunk > own.row; // the diagonal: nothing reads it
    float dscores[N][4] = {};
    if (!above) multiply_rows(dscores, s.d_o, s.v_new, own);
    sync_block(); // the state has been read
    if (above) return;
#pragma unroll
    for (uint32_t n = 0; n < N; n++)
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t row = own.row + row_of(2 * j), column = 8 * (own.chunk + n) + column_of(0);
            float decayed[2] = {};
            if (column <= row && row < chunk.rows) {
                const uint32_t pair = *(const uint32_t*)(scores + uint64_t(row) * (p.value_heads * CHUNK) + column);
#pragma unroll
                for (uint32_t e = 0; e < 2; e++) {
                    if (column + e > row) continue;
                    const float term = dscores[n][2 * j + e] * unpack_bf16x2(pair, e);
                    sums.dlog[j] += term;
                    columns[n][e] -= term;
                    decayed[e] = dscores[n][2 * j + e] * s.between(row, column + e);
                }
            }
            s.of_columns.store(row, column, decayed[0] * s.key[column], decayed[1] * s.key[column + 1]);
            s.of_rows.store(row, column, decayed[0] * s.query[row], decayed[1] * s.query[row]);
        }
}

// Leaves the gradient of the system's keys, times decays and step sizes: of 16 columns at a time, as registers are few.
__device__ __forceinline__ void system(Sums& sums, float (&columns)[N][2], const Shared& s, uint32_t rows) {
    sync_block(); // the other triangles have been read
#pragma unroll
    for (uint32_t pair = 0; pair < N / 2; pair++) {
        Place own;
        own.chunk += 2 * pair;
        if (8 * own.chunk > own.row) return;
        float dsystem[2][4] = {}, keys[2][4] = {};
        multiply_rows(dsystem, s.dvb, s.v_new, own);
        multiply_rows(keys, s.keys, s.keys, own);
#pragma unroll
        for (uint32_t n = 0; n < 2; n++)
#pragma unroll
            for (uint32_t j = 0; j < 2; j++) {
                const uint32_t row = own.row + row_of(2 * j), column = 8 * (own.chunk + n) + column_of(0);
                const float beta = s.beta[row], of_row = s.key[row];
                float decayed[2] = {};
#pragma unroll
                for (uint32_t e = 0; e < 2; e++) {
                    if (column + e >= row || row >= rows) continue;
                    const float d = -dsystem[n][2 * j + e] * s.between(row, column + e);
                    const float share = d * of_row * s.key[column + e] * keys[n][2 * j + e];
                    sums.dbeta[j] += share;
                    sums.dlog[j] += beta * share;
                    columns[2 * pair + n][e] -= beta * share;
                    decayed[e] = beta * d;
                }
                s.of_columns.store(row, column, decayed[0] * s.key[column], decayed[1] * s.key[column + 1]);
                s.of_rows.store(row, column, decayed[0] * of_row, decayed[1] * of_row);
            }
    }
}

// Adds a triangle times keys to `dq`, and its transpose times queries to `dk`.
__device__ __forceinline__ void add_scores(float (&dq)[2 * N][4], float (&dk)[2 * N][4], const Shared& s) {
    const Place own;
    const uint32_t diagonal = own.row / 16;
#pragma unroll 1
    for (uint32_t i = 0; i <= diagonal; i++)
        multiply(dq, 1, [&](uint32_t(&a)[4], uint32_t) { s.of_columns.load_a(a, own.row, i); },
                 [&](uint32_t(&b)[4], uint32_t, uint32_t pair) { s.keys.load_b(b, 16 * i, own.chunk_of(pair)); });
#pragma unroll 1
    for (uint32_t i = diagonal; i < ROW_WARPS; i++)
        multiply(dk, 1, [&](uint32_t(&a)[4], uint32_t) { s.of_rows.load_a_transposed(a, 16 * i, own.row / 8); },
                 [&](uint32_t(&b)[4], uint32_t, uint32_t pair) { s.queries.load_b(b, 16 * i, own.chunk_of(pair)); });
}

// Adds a triangle and its transpose, times keys. They do not overlap: their sum has the bits of either.
__device__ __forceinline__ void add_system(float (&dk)[2 * N][4], const Shared& s) {
    const Place own;
    const uint32_t diagonal = own.row / 16;
    const auto load_a = [&](uint32_t(&a)[4], uint32_t i) {
        uint32_t transposed[4] = {};
        if (i <= diagonal) s.of_columns.load_a(a, own.row, i);
        if (i >= diagonal) s.of_rows.load_a_transposed(transposed, 16 * i, own.row / 8);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) a[j] = i <= diagonal ? a[j] | transposed[j] : transposed[j];
    };
#pragma unroll 1
    for (uint32_t i = 0; i < ROW_WARPS; i++)
        multiply(dk, 1, [&](uint32_t(&a)[4], uint32_t) { load_a(a, i); },
                 [&](uint32_t(&b)[4], uint32_t, uint32_t pair) { s.keys.load_b(b, 16 * i, own.chunk_of(pair)); });
}

// Stores the sums of each warp.
__device__ __forceinline__ void store_sums(const Sums& sums, const float (&columns)[N][2], const Shared& s) {
    const Place own;
    const uint32_t lane = threadIdx.x % WARP, part = own.chunk / N;
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const float dlog = group_sum<4>(sums.dlog[j]), dbeta = group_sum<4>(sums.dbeta[j]);
        if (lane % 4 > 0) continue;
        s.dlogs[part][own.row + row_of(2 * j)] = dlog;
        s.dbetas[part][own.row + row_of(2 * j)] = dbeta;
    }
#pragma unroll
    for (uint32_t n = 0; n < N; n++)
#pragma unroll
        for (uint32_t e = 0; e < 2; e++) {
            float sum = columns[n][e];
#pragma unroll
            for (uint32_t lanes = 4; lanes < WARP; lanes *= 2) sum += shuffle_xor(sum, lanes);
            if (lane < 4) s.columns[own.row / 16][8 * (own.chunk + n) + column_of(e)] = sum;
        }
    const float last = group_sum(sums.last);
    if (lane == 0) s.lasts[threadIdx.x / WARP] = last;
}

// Adds the warps' sums of two tokens a lane; one warp.
__device__ __forceinline__ void add_sums(const Shared& s, uint32_t rows) {
    for (uint32_t row = threadIdx.x; row < CHUNK; row += WARP) {
        float dlog = 0.0f, dbeta = s.values[row];
        for (uint32_t part = 0; part < PARTS; part++) dlog += s.dlogs[part][row], dbeta += s.dbetas[part][row];
        for (uint32_t warp = 0; warp < ROW_WARPS; warp++) dlog += s.columns[warp][row];
        for (uint32_t warp = 0; row == rows - 1 && warp < VARIANT_THREADS / WARP; warp++) dlog += s.lasts[warp];
        s.dlog[row] = dlog, s.dbeta[row] = dbeta;
    }
    sync_warp();
}

// Sums each row of a tile times its gradient, over a warp's columns.
__device__ __forceinline__ void store_dots(float (*dots)[CHUNK], Tile<HEAD> tile, const float (&gradient)[2 * N][4]) {
    const Place own;
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t row = own.row + row_of(2 * j);
        float sum = 0.0f;
#pragma unroll
        for (uint32_t n = 0; n < 2 * N; n++) {
            const uint32_t pair = tile.load(row, own.column(n) + column_of(0));
#pragma unroll
            for (uint32_t e = 0; e < 2; e++) sum = fmaf(gradient[n][2 * j + e], unpack_bf16x2(pair, e), sum);
        }
        sum = group_sum<4>(sum);
        if (threadIdx.x % 4 == 0) dots[own.chunk / N][row] = sum;
    }
}

// Replaces the rows of a tile by their gradients, of those of the rows when normalized: `along` is 128 or 1, as the
// norm is divided by.
__device__ __forceinline__ void unnormalize(Tile<HEAD> tile, const float (&gradient)[2 * N][4], const float* factors,
                                            const float (*dots)[CHUNK], float along) {
    const Place own;
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t row = own.row + row_of(2 * j);
        float sum = 0.0f;
        for (uint32_t part = 0; part < PARTS; part++) sum += dots[part][row];
        const float factor = factors[row], share = along * factor * factor * sum;
#pragma unroll
        for (uint32_t n = 0; n < 2 * N; n++) {
            const uint32_t column = own.column(n) + column_of(0), pair = tile.load(row, column);
            tile.store(row, column, factor * fmaf(-share, unpack_bf16x2(pair, 0), gradient[n][2 * j]),
                       factor * fmaf(-share, unpack_bf16x2(pair, 1), gradient[n][2 * j + 1]));
        }
    }
}

// Starts copying a value head's operands, and loads its gates.
__device__ __forceinline__ void begin_head(const delta_rule_bwd_params& p, const Shared& s, Chunk chunk,
                                           uint32_t head) {
    const Head of_head = head_of(p, chunk, head);
    const uint32_t row_stride = p.value_heads * HEAD, key_head = head / (p.value_heads / p.key_heads);
    s.d_o.copy<CHUNK>(of_head.d_o, row_stride, chunk.rows);
    s.v_new.copy<CHUNK>(of_head.v_new, row_stride, chunk.rows);
    s.dvb.copy<CHUNK>(of_head.dvb, row_stride, chunk.rows);
    if (chunk.has_before) s.state.copy<CHUNK>(of_head.state, HEAD, CHUNK);
    cp_async_commit();
    const uint32_t row = threadIdx.x;
    if (row >= CHUNK) return;
    const bool inside = row < chunk.rows;
    const uint64_t token = chunk.first + (inside ? row : 0), gate = token * p.value_heads + head;
    const float* scale = (const float*)p.scale + token * 2 * p.key_heads + key_head;
    s.decay[row] = inside ? ((const float*)p.decay)[gate] : 0.0f;
    s.beta[row] = inside ? ((const float*)p.beta)[gate] : 0.0f;
    s.query[row] = inside ? scale[0] : 0.0f;
    s.key[row] = inside ? scale[p.key_heads] : 0.0f;
}

KERNEL(delta_rule_bwd_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const Shared s(memory);
    const uint32_t group = p.value_heads / p.key_heads, first_head = blockIdx.x % p.key_heads * group;
    const Chunk chunk = chunk_of(p.sequences, p.count, blockIdx.x / p.key_heads);
    if (chunk.rows == 0) return store_no_gates(p, blockIdx.x / p.key_heads, first_head, group);

    const Rows rows = rows_of(p, chunk);
    s.queries.copy<CHUNK>((const bf16*)p.qkv + rows.queries, rows.stride, chunk.rows);
    s.keys.copy<CHUNK>((const bf16*)p.qkv + rows.keys, rows.stride, chunk.rows);
    float dq[2 * N][4] = {}, dk[2 * N][4] = {};
    for (uint32_t head = first_head; head < first_head + group; head++) {
        if (head > first_head) sync_block(); // the last head's operands and sums have been read
        begin_head(p, s, chunk, head);
        cp_async_wait<0>();
        sync_block();
        Sums sums = {};
        add_states(p, dq, dk, sums, s, chunk, head);
        float columns[N][2] = {};
        scores(p, sums, columns, s, chunk, head);
        sync_block();
        add_scores(dq, dk, s);
        system(sums, columns, s, chunk.rows);
        sync_block(); // v_new has been read
        store_sums(sums, columns, s);
        add_system(dk, s);
        sync_block();
        if (threadIdx.x >= WARP) continue;
        add_sums(s, chunk.rows);
        store_gates(p, chunk, opaque(blockIdx.x) / p.key_heads, head, s.dlog, s.dbeta);
    }

    store_dots(s.query_dots, s.queries, dq);
    store_dots(s.key_dots, s.keys, dk);
    sync_block();
    unnormalize(s.queries, dq, s.query, s.query_dots, HEAD);
    unnormalize(s.keys, dk, s.key, s.key_dots, 1.0f);
    sync_block();
    const Rows own = rows_of(p, chunk);
    s.queries.write<CHUNK>((bf16*)p.dqkv + own.queries, own.stride, chunk.rows);
    s.keys.write<CHUNK>((bf16*)p.dqkv + own.keys, own.stride, chunk.rows);
}
