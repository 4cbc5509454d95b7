// States from chunk to chunk: a CTA takes columns of a sequence's state of a value head, which depend on no others,
// from the first chunk to the last. The state is in accumulators, 32 rows a warp, and rounded in shared memory as
// operand b. A warp takes 16 of the chunk's rows and copies these rows of each tile itself. Its v_new and o take the
// place of its rows of the inverse and of the scores, and beta (v - predicted) that of values; so the only barriers are
// those before GEMMs that read other warps' rows. Tiles of the next chunk are copied as soon as those of this one have
// been read, and keys, which are read to the end, have two stages. Multiplying the zeros behind the diagonals costs no
// time: the last warp has none.
// Bound: memory where sequences fill the device, elsewhere latency from chunk to chunk.
// Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/gates.cuh"
#include "delta_rule/mma/tile.cuh"

enum : uint32_t {
    COLUMNS = VARIANT_COLUMNS,
    N = COLUMNS / 8,
    OWN = 16,                                    // rows of a warp
    OWN_STATE = HEAD / (VARIANT_THREADS / WARP), // rows of its state
};
static_assert(COLUMNS <= CHUNK, "v_new and o take the place of the inverse and of the scores");
static_assert(CHUNK == OWN * (VARIANT_THREADS / WARP), "each warp has 16 rows of a chunk");

struct Tiles {
    Tile<HEAD> keys, queries; // keys: the first of two stages
    Tile<CHUNK> inverse, scores;
    Tile<COLUMNS> values, written, state;
    Tile<COLUMNS> v_new, o; // in place of the inverse and of scores

    __device__ __forceinline__ explicit Tiles(uint32_t base) {
        const auto take = [&](uint32_t bytes) { return (base += bytes) - bytes; };
        keys.base = take(2 * Tile<HEAD>::bytes(CHUNK));
        queries.base = take(Tile<HEAD>::bytes(CHUNK));
        inverse.base = v_new.base = take(Tile<CHUNK>::bytes(CHUNK));
        scores.base = o.base = take(Tile<CHUNK>::bytes(CHUNK));
        values.base = take(Tile<COLUMNS>::bytes(CHUNK));
        written.base = take(Tile<COLUMNS>::bytes(CHUNK));
        state.base = take(Tile<COLUMNS>::bytes(HEAD));
    }
    __device__ __forceinline__ Tile<HEAD> keys_of(uint32_t index) const {
        return {keys.base + index % 2 * Tile<HEAD>::bytes(CHUNK)};
    }
};

// A head's view of the rows of a chunk that are the calling warp's.
struct Rows {
    const bf16* data; // of the sequence's first token
    uint32_t stride;

    template <uint32_t columns> __device__ __forceinline__ void copy(const Tile<columns>& tile, Chunk chunk) const {
        const uint32_t row = threadIdx.x / WARP * OWN;
        tile.copy_rows(row, data + uint64_t(chunk.first + row) * stride, stride, chunk.rows_of_warp());
    }
    template <uint32_t columns> __device__ __forceinline__ void write(const Tile<columns>& tile, Chunk chunk) const {
        const uint32_t row = threadIdx.x / WARP * OWN;
        bf16* to = (bf16*)data + uint64_t(chunk.first + row) * stride;
        tile.template write_rows<OWN>(row, to, stride, chunk.rows_of_warp());
    }
};

struct Operands {
    Rows queries, keys, values, inverse, scores, o, v_new;

    __device__ __forceinline__ Operands(const delta_rule_fwd_params& p, uint32_t head, uint32_t key_head,
                                        uint32_t column) {
        const uint32_t stride = (2 * p.key_heads + p.value_heads) * HEAD;
        const bf16* qkv = (const bf16*)p.qkv;
        queries = {qkv + key_head * HEAD, stride}, keys = {queries.data + p.key_heads * HEAD, stride};
        values = {qkv + (2 * p.key_heads + head) * HEAD + column, stride};
        inverse = {(const bf16*)p.inverse + head * CHUNK, p.value_heads * CHUNK};
        scores = {(const bf16*)p.scores + head * CHUNK, p.value_heads * CHUNK};
        o = {(const bf16*)p.o + head * HEAD + column, p.value_heads * HEAD};
        v_new = {(const bf16*)p.v_new + head * HEAD + column, p.value_heads * HEAD};
    }
};

// Factors of the two rows of a lane's accumulators; zeros behind the last.
struct Tokens {
    float decay[2], beta[2], of_query[2], of_key[2];
    float last; // decay of the whole chunk

    __device__ __forceinline__ void load(const delta_rule_fwd_params& p, Chunk chunk, uint32_t head,
                                         uint32_t key_head) {
        const float* decays = (const float*)p.decay + uint64_t(chunk.first) * p.value_heads + head;
        const float* betas = (const float*)p.beta + uint64_t(chunk.first) * p.value_heads + head;
        const float* scales = (const float*)p.scale + uint64_t(chunk.first) * 2 * p.key_heads + key_head;
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t row = threadIdx.x / WARP * OWN + row_of(2 * half);
            const bool valid = row < chunk.rows;
            decay[half] = valid ? decays[row * p.value_heads] : 0.0f;
            beta[half] = valid ? betas[row * p.value_heads] : 0.0f;
            of_query[half] = valid ? scales[2 * row * p.key_heads] : 0.0f;
            of_key[half] = valid ? scales[(2 * row + 1) * p.key_heads] : 0.0f;
        }
        last = decays[(chunk.rows - 1) * p.value_heads];
    }
};

// Of what queries and keys read of the state, of the change, of what is written to the state, and of the state.
struct Factors {
    float by_query[2], by_key[2], beta[2], written[2], state[2];

    __device__ __forceinline__ explicit Factors(const Tokens& tokens) {
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const float grown = decayed(tokens.decay[half]);
            by_query[half] = grown * tokens.of_query[half], by_key[half] = grown * tokens.of_key[half];
            beta[half] = tokens.beta[half];
            written[half] = decayed(tokens.last - tokens.decay[half]) * tokens.of_key[half];
            state[half] = decayed(tokens.last);
        }
    }
};

template <uint32_t N> __device__ __forceinline__ void scale_rows(float (&acc)[N][4], const float (&factors)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < 4 * N; i++) acc[i / 4][i % 4] *= factors[i % 4 / 2];
}

// Replaces the warp's rows of values by beta (v - predicted), of what keys read of the state.
__device__ __forceinline__ void replace_values(const Tile<COLUMNS>& values, uint32_t row, const float (&read)[N][4],
                                               const Factors& factors) {
    float change[N][4];
#pragma unroll
    for (uint32_t pair = 0; pair < N / 2; pair++) {
        uint32_t value[4]; // laid out as the accumulators are
        values.load_a(value, row, pair);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t n = 2 * pair + i / 4, e = i % 4, half = e / 2;
            change[n][e] = unpack_bf16x2(value[i / 2], e) - factors.by_key[half] * read[n][e];
        }
    }
    sync_warp();
    values.store_rows(row, change, factors.beta);
}

KERNEL(delta_rule_fwd_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const Tiles tiles(shared_address(memory));
    const uint32_t slice = blockIdx.x % (HEAD / COLUMNS) * COLUMNS, unit = blockIdx.x / (HEAD / COLUMNS);
    const uint32_t head = unit % p.value_heads, key_head = head / (p.value_heads / p.key_heads);
    const Sequence sequence = ((const Sequence*)p.sequences)[unit / p.value_heads];
    if (sequence.length == 0) return;
    const uint32_t row = threadIdx.x / WARP * OWN, state_row = threadIdx.x / WARP * OWN_STATE;
    const Operands all(p, head, key_head, slice);

    Chunk chunk = chunk_of(sequence, 0);
    all.keys.copy(tiles.keys_of(0), chunk);
    all.queries.copy(tiles.queries, chunk);
    cp_async_commit();
    all.values.copy(tiles.values, chunk);
    cp_async_commit();
    Tokens tokens;
    tokens.load(p, chunk, head, key_head);
    float state[OWN_STATE / 16][N][4] = {};
    for (uint32_t index = 0;; index++) {
        const Chunk next = chunk_of(sequence, index + 1); // if there is one
        const Tile<HEAD> keys = tiles.keys_of(index);
        sync_block(); // the state is there, and the last chunk's keys and v_new have been read
        all.inverse.copy(tiles.inverse, chunk);
        all.scores.copy(tiles.scores, chunk);
        cp_async_commit();
        if (chunk.has_behind) all.keys.copy(tiles.keys_of(index + 1), next);
        cp_async_commit();
        const Factors factors(tokens);
        cp_async_wait<2>(); // all but the two above
        sync_warp();
        float read[2][N][4] = {}; // of the state, by queries and by keys
        if (chunk.has_before)
            multiply(
                read, HEAD / 16,
                [&](uint32_t(&a)[4], uint32_t step, uint32_t m) {
                    (m == 0 ? tiles.queries : keys).load_a(a, row, step);
                },
                [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { tiles.state.load_b(b, step * 16, 2 * pair); });
        replace_values(tiles.values, row, read[1], factors);
        cp_async_wait<1>(); // all but the next keys
        sync_block();       // the change is there, and queries and the state have been read
        if (chunk.has_behind) all.queries.copy(tiles.queries, next);
        cp_async_commit();
        float v_new[N][4] = {};
        multiply(v_new, tiles.inverse, row, tiles.values);
        sync_warp();
        tiles.v_new.store_rows(row, v_new);
        tiles.written.store_rows(row, v_new, factors.written);
        sync_block(); // v_new is there, and the change has been read
        if (chunk.has_behind) {
            all.values.copy(tiles.values, next);
            tokens.load(p, next, head, key_head);
        }
        cp_async_commit();
        if (KEY_KEEP) all.v_new.write(tiles.v_new, chunk);
        float(&o)[N][4] = read[0];
        scale_rows(o, factors.by_query);
        multiply(o, tiles.scores, row, tiles.v_new);
        sync_warp();
        tiles.o.store_rows(row, o);
        sync_warp();
        all.o.write(tiles.o, chunk);
        if (!chunk.has_behind) break;

#pragma unroll
        for (auto& rows : state) scale_rows(rows, factors.state);
        multiply(
            state, CHUNK / 16,
            [&](uint32_t(&a)[4], uint32_t step, uint32_t m) {
                keys.load_a_transposed(a, step * 16, state_row / 8 + 2 * m);
            },
            [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { tiles.written.load_b(b, step * 16, 2 * pair); });
#pragma unroll
        for (uint32_t m = 0; m < OWN_STATE / 16; m++) tiles.state.store_rows(state_row + m * 16, state[m]);
        if (KEY_KEEP) {
            sync_warp();
            const uint64_t slot = uint64_t(chunk.behind()) * p.value_heads + head;
            bf16* states = (bf16*)p.states + (slot * HEAD + state_row) * HEAD + slice;
            tiles.state.write_rows<OWN_STATE>(state_row, states, HEAD, OWN_STATE);
        }
        chunk = next;
    }
}
