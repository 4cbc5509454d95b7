// States from chunk to chunk: a CTA takes 64 columns of a sequence's state of a value head, which depend on no others, from
// the first chunk to the last. The state is in accumulators, 32 rows a warp, and rounded in shared memory as operand b.
// A warp takes 16 of the chunk's rows and copies these rows of each tile itself; its v_new and o take the place of its rows
// of the inverse and of the scores. So the only barriers are before the GEMMs that read other warps' rows. Tiles of the next
// chunk are copied as soon as those of this one have been read; keys, which are read to the end, have two stages.
// Bound: memory where sequences fill the device, elsewhere latency from chunk to chunk.
// Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/gates.cuh"
#include "delta_rule/mma/tile.cuh"

enum : uint32_t {
    COLUMNS = VARIANT_COLUMNS,
    N = COLUMNS / 8,
    OWN = 16,                                     // rows of a warp
    OWN_STATE = HEAD / (VARIANT_THREADS / WARP), // rows of its state
};

struct Tiles {
    Tile<HEAD> keys, queries; // keys: the first of two stages
    Tile<CHUNK> inverse, scores;
    Tile<COLUMNS> values, written, state;
    Tile<COLUMNS> v_new, o, change; // in place of the inverse, of scores and of values

    __device__ __forceinline__ explicit Tiles(uint32_t base) {
        const auto take = [&](uint32_t bytes) { return (base += bytes) - bytes; };
        keys.base = take(2 * Tile<HEAD>::bytes(CHUNK));
        queries.base = take(Tile<HEAD>::bytes(CHUNK));
        inverse.base = v_new.base = take(Tile<CHUNK>::bytes(CHUNK));
        scores.base = o.base = take(Tile<CHUNK>::bytes(CHUNK));
        values.base = change.base = take(Tile<COLUMNS>::bytes(CHUNK));
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
        tile.copy_rows(row, data + uint64_t(chunk.first + row) * stride, stride, chunk.rows_of_warp(), OWN);
    }
    template <uint32_t columns> __device__ __forceinline__ void write(const Tile<columns>& tile, Chunk chunk) const {
        const uint32_t row = threadIdx.x / WARP * OWN;
        tile.write_rows(row, (bf16*)data + uint64_t(chunk.first + row) * stride, stride, chunk.rows_of_warp());
    }
};

// What the two rows of a lane's accumulators are multiplied by; zeros behind the last.
struct Factors {
    float decay[2], beta[2], of_query[2], of_key[2];
    float last; // decay of the whole chunk

    __device__ __forceinline__ void load(const delta_rule_fwd_params& p, Chunk chunk, uint32_t head, uint32_t key_head) {
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

KERNEL(delta_rule_fwd_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const Tiles tiles(shared_address(memory));
    const uint32_t slice = blockIdx.x % (HEAD / COLUMNS) * COLUMNS, unit = blockIdx.x / (HEAD / COLUMNS);
    const uint32_t head = unit % p.value_heads, key_head = head / (p.value_heads / p.key_heads);
    const Sequence own = ((const Sequence*)p.sequences)[unit / p.value_heads];
    if (own.length == 0) return;
    const uint32_t row = threadIdx.x / WARP * OWN, state_row = threadIdx.x / WARP * OWN_STATE;
    const uint32_t stride = (2 * p.key_heads + p.value_heads) * HEAD;
    const bf16* qkv = (const bf16*)p.qkv;
    const Rows queries = {qkv + key_head * HEAD, stride}, keys = {queries.data + p.key_heads * HEAD, stride};
    const Rows values = {qkv + (2 * p.key_heads + head) * HEAD + slice, stride};
    const Rows inverse = {(const bf16*)p.inverse + head * CHUNK, p.value_heads * CHUNK};
    const Rows scores = {(const bf16*)p.scores + head * CHUNK, p.value_heads * CHUNK};
    const Rows o = {(const bf16*)p.o + head * HEAD + slice, p.value_heads * HEAD};
    const Rows v_new = {(const bf16*)p.v_new + head * HEAD + slice, p.value_heads * HEAD};

    Chunk chunk = chunk_of(own, 0);
    keys.copy(tiles.keys, chunk);
    queries.copy(tiles.queries, chunk);
    cp_async_commit();
    values.copy(tiles.values, chunk);
    cp_async_commit();
    Factors factors;
    factors.load(p, chunk, head, key_head);
    float state[OWN_STATE / 16][N][4] = {};
    for (uint32_t index = 0;; index++) {
        const Chunk next = chunk_of(own, index + 1); // if the sequence has it
        const Tile<HEAD> own_keys = tiles.keys_of(index);
        sync_block(); // the state is there, and v_new and the other keys have been read
        inverse.copy(tiles.inverse, chunk);
        scores.copy(tiles.scores, chunk);
        cp_async_commit();
        if (chunk.has_behind) keys.copy(tiles.keys_of(index + 1), next);
        cp_async_commit();
        float grown[2], behind[2]; // what has become of the state, and what will become of a token
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            grown[half] = decayed(factors.decay[half]);
            behind[half] = decayed(factors.last - factors.decay[half]) * factors.of_key[half];
        }
        const float whole = decayed(factors.last);
        cp_async_wait<2>();
        sync_warp();

        float read[2][N][4] = {}; // of the state: by queries, and by keys
        float(&sums)[N][4] = read[0];
        if (chunk.has_before)
            multiply(
                read, HEAD / 16,
                [&](uint32_t(&a)[4], uint32_t step, uint32_t m) { (m == 0 ? tiles.queries : own_keys).load_a(a, row, step); },
                [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { tiles.state.load_b(b, step * 16, 2 * pair); });
#pragma unroll
        for (uint32_t pair = 0; pair < N / 2; pair++) {
            uint32_t value[4]; // laid out as the accumulators are
            tiles.values.load_a(value, row, pair);
            sync_warp();
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t n = 2 * pair + i / 2, half = i % 2;
                const float factor = grown[half] * factors.of_key[half], beta = factors.beta[half];
                tiles.change.store(row + row_of(2 * half), n * 8 + column_of(0),
                                   beta * (unpack_bf16x2(value[i], 0) - factor * read[1][n][2 * half]),
                                   beta * (unpack_bf16x2(value[i], 1) - factor * read[1][n][2 * half + 1]));
            }
        }
        cp_async_wait<1>();
        sync_block(); // the change is there, and queries and the state have been read
        if (chunk.has_behind) queries.copy(tiles.queries, next);
        cp_async_commit();

        float change[N][4] = {};
        multiply(
            change, CHUNK / 16, [&](uint32_t(&a)[4], uint32_t step) { tiles.inverse.load_a(a, row, step); },
            [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { tiles.change.load_b(b, step * 16, 2 * pair); });
        sync_warp();
#pragma unroll
        for (uint32_t n = 0; n < N; n++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t to = row + row_of(2 * half), column = n * 8 + column_of(0);
                const float first = change[n][2 * half], second = change[n][2 * half + 1];
                tiles.v_new.store(to, column, first, second);
                tiles.written.store(to, column, behind[half] * first, behind[half] * second);
                const float factor = grown[half] * factors.of_query[half];
                sums[n][2 * half] *= factor, sums[n][2 * half + 1] *= factor;
            }
        sync_block(); // v_new is there, and the change has been read
        if (chunk.has_behind) {
            values.copy(tiles.values, next);
            factors.load(p, next, head, key_head);
        }
        cp_async_commit();
        if (KEY_KEEP) v_new.write(tiles.v_new, chunk);

        multiply(
            sums, CHUNK / 16, [&](uint32_t(&a)[4], uint32_t step) { tiles.scores.load_a(a, row, step); },
            [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { tiles.v_new.load_b(b, step * 16, 2 * pair); });
        sync_warp();
#pragma unroll
        for (uint32_t n = 0; n < N; n++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++)
                tiles.o.store(row + row_of(2 * half), n * 8 + column_of(0), sums[n][2 * half], sums[n][2 * half + 1]);
        sync_warp();
        o.write(tiles.o, chunk);
        if (!chunk.has_behind) break;

#pragma unroll
        for (uint32_t m = 0; m < OWN_STATE / 16; m++)
#pragma unroll
            for (uint32_t n = 0; n < N; n++)
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) state[m][n][e] *= whole;
        multiply(
            state, CHUNK / 16,
            [&](uint32_t(&a)[4], uint32_t step, uint32_t m) {
                own_keys.load_a_transposed(a, step * 16, state_row / 8 + 2 * m);
            },
            [&](uint32_t(&b)[4], uint32_t step, uint32_t pair) { tiles.written.load_b(b, step * 16, 2 * pair); });
#pragma unroll
        for (uint32_t m = 0; m < OWN_STATE / 16; m++)
#pragma unroll
            for (uint32_t n = 0; n < N; n++)
#pragma unroll
                for (uint32_t half = 0; half < 2; half++)
                    tiles.state.store(state_row + m * 16 + row_of(2 * half), n * 8 + column_of(0), state[m][n][2 * half],
                                      state[m][n][2 * half + 1]);
        if (KEY_KEEP) {
            sync_warp();
            const uint64_t slot = uint64_t(chunk.behind()) * p.value_heads + head;
            tiles.state.write_rows(state_row, (bf16*)p.states + (slot * HEAD + state_row) * HEAD + slice, HEAD, OWN_STATE);
        }
        chunk = next;
    }
}
