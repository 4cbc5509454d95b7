// Rows of slots on tensor cores: a CTA for a run and a value head takes the run in blocks of 16 rows of a chunk, with
// the instructions of solve.cu and fwd.cu for each row. A warp owns 16 columns: of the scores or of the system (half of
// the warps each), then of the state, whose fragments it reads from memory, and of all that follows from it, so that
// barriers stand only before the inverse and the scores are operands. Queries and scores are there of one block alone,
// and the rounded inverse takes the place of the exact one, so that three CTAs fit a multiprocessor.
// Bound: memory, the state of a slot for each row; next to it latency.
// Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/decode.cuh"
#include "delta_rule/mma/tile.cuh"
#include "early.cuh"

enum : uint32_t {
    OWN = DELTA_BLOCK,    // rows of a fragment, and columns of a warp
    N = OWN / 8,          // fragments of accumulators in its columns
    BLOCKS = CHUNK / OWN, // of rows of a chunk
    STEPS = HEAD / OWN,   // of depth in a head
    LINE = 128 / sizeof(bf16),
};
static_assert(VARIANT_THREADS * LINE == HEAD * HEAD, "a thread prefetches a line of the state");
static_assert(VARIANT_THREADS == HEAD / OWN * WARP, "a warp for 16 columns of the state");
static_assert(VARIANT_THREADS == 4 * CHUNK, "threads share a chunk's tokens by 4");
static_assert(CHUNK * sizeof(float) == HEAD * sizeof(bf16), "a row of the system is as long as one of v_new");

// Rows of the run in a block of a chunk.
struct Part {
    uint32_t begin, end; // rows of the chunk
    uint32_t last;       // end of the run's rows in the chunk
    uint32_t index;      // of row `begin` in the run
    bool is_first;       // of the run in its chunk: what came before it is with the slot, later it is here
    bool has_before;     // another chunk of the sequence

    __device__ __forceinline__ Part(const Run& run, uint32_t index) : index(index) {
        const uint32_t position = run.position + index;
        begin = position % CHUNK;
        last = min(uint32_t(CHUNK), begin + run.rows - index);
        end = min(begin / OWN * OWN + OWN, last);
        is_first = index == 0 || begin == 0;
        has_before = position >= CHUNK;
    }
    __device__ __forceinline__ bool has(uint32_t row) const { return row >= begin && row < end; }
    __device__ __forceinline__ uint32_t block() const { return begin / OWN; }
    // First row of the block.
    __device__ __forceinline__ uint32_t top() const { return block() * OWN; }
    __device__ __forceinline__ uint32_t index_of(uint32_t row) const { return index + row - begin; }
};

struct Shared {
    Tile<HEAD> keys, change, v_new; // of change, rows of values first
    Tile<HEAD> queries;             // of the block
    Tile<CHUNK> scores;             // of the block
    Tile<CHUNK> inverse;            // in place of `rows`
    float* rows;                    // of the inverse, before they are rounded
    float* system;                  // of the block, in place of its rows of v_new, negated
    Gates* gates;

    __device__ __forceinline__ explicit Shared(unsigned char* memory) {
        constexpr uint32_t wide = Tile<HEAD>::bytes(CHUNK), exact = CHUNK * CHUNK * sizeof(float);
        const uint32_t base = shared_address(memory);
        keys.base = base, change.base = base + wide, v_new.base = base + 2 * wide, inverse.base = base + 3 * wide;
        queries.base = inverse.base + exact, scores.base = queries.base + Tile<HEAD>::bytes(OWN);
        system = (float*)(memory + 2 * wide), rows = (float*)(memory + 3 * wide);
        gates = (Gates*)(memory + 3 * wide + exact + Tile<HEAD>::bytes(OWN) + Tile<CHUNK>::bytes(OWN));
    }
};

// Starts copying a block: the slot's rows before it, then the run's in the chunk, then zeros; later blocks lack their
// queries alone. The state, which is read last, comes to L2 meanwhile.
__device__ __forceinline__ void copy(const Shared& s, const Decoded& own, Part part) {
    if (part.is_first && part.has_before) prefetch_l2(own.rounded() + opaque(threadIdx.x) * LINE);
    // Rows from `top`, where the tile begins, up to the last block before `last`.
    const auto take = [&](const Tile<HEAD>& tile, uint32_t top, uint32_t last, const bf16* kept, uint32_t head) {
        const uint32_t rows = (last + OWN - 1) / OWN * OWN;
        for (uint32_t n = top * (HEAD / 8) + threadIdx.x; n < rows * (HEAD / 8); n += VARIANT_THREADS) {
            const uint32_t row = n / (HEAD / 8), chunk = n % (HEAD / 8);
            const bool is_kept = row < part.begin && kept != nullptr, is_new = row >= part.begin && row < last;
            const bf16* from = is_kept ? kept + row * HEAD : own.head_of(is_new ? part.index_of(row) : 0, head);
            cp_async(tile.at(row - top, chunk), from + chunk * 8, is_kept || is_new);
        }
    };
    take(s.queries, part.top(), part.end, nullptr, own.key_head);
    if (part.is_first) {
        take(s.keys, 0, part.last, own.keys(), own.p.key_heads + own.key_head);
        take(s.change, 0, part.last, own.change(), 2 * own.p.key_heads + own.head);
    }
    // Up to the diagonal's vector of eight.
    for (uint32_t n = threadIdx.x; n < part.begin * (CHUNK / 4); n += VARIANT_THREADS)
        if (n % (CHUNK / 4) * 4 <= (n / (CHUNK / 4) | 7))
            cp_async(shared_address(s.rows + 4 * n), own.inverse() + 4 * n);
    cp_async_commit();
}

// Computes decays and step sizes; a quarter of the threads each, behind a sync_block.
__device__ __forceinline__ void load_gates(const Shared& s, const Decoded& own, Part part) {
    const uint32_t row = threadIdx.x % CHUNK, quarter = threadIdx.x / CHUNK;
    const bool is_new = part.has(row), is_kept = row < part.begin;
    const bool is_here = is_kept && !part.is_first;
    float sum = 0.0f; // of all decays up to the row, or before the run
    if (quarter == 0 && part.begin > 0)
        sum = part.is_first ? own.decay()[is_kept ? row : part.begin - 1] : s.gates->decay[part.begin - 1];
    if (quarter == 0) s.gates->log[row] = is_new ? own.log_decay_of(part.index_of(row)) : 0.0f;
    if (quarter == 1) s.gates->beta[row] = is_new ? own.beta_of(part.index_of(row)) : 0.0f;
    if (quarter == 2) s.gates->of_query[row] = 0.0f;
    if (quarter == 3 && !is_here) s.gates->of_key[row] = is_kept ? own.scale()[row] : 0.0f;
    sync_block();
    if (quarter != 0 || is_here) return;
    for (uint32_t other = part.begin; other <= row; other++) sum += s.gates->log[other];
    s.gates->decay[row] = sum;
    if (is_new) own.decay()[row] = sum;
}

// Computes the factors of queries and keys, and stores what value heads share. Tiles are there.
__device__ __forceinline__ void load_factors(const Shared& s, const Decoded& own, Part part) {
    // Eight lanes share a query or a key, as factor_of() adds its eight sums.
    const uint32_t row = part.top() + threadIdx.x / 16, e = threadIdx.x % 8;
    const bool is_query = threadIdx.x / 8 % 2 == 0;
    if (any_lane(part.has(row))) {
        float sum = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < HEAD / 8; i++) {
            const uint32_t at = is_query ? s.queries.at(row - part.top(), i) : s.keys.at(row, i);
            const float value = unpack_bf16x2(load_shared_word(at + e / 2 * 4), e);
            sum = fmaf(value, value, sum);
        }
        const float factor = factor_of(is_query, group_sum<8>(sum));
        if (e == 0 && part.has(row)) {
            (is_query ? s.gates->of_query : s.gates->of_key)[row] = factor;
            if (!is_query && own.leads) own.scale()[row] = factor;
        }
    }
    if (!own.leads) return;
    for (uint32_t n = part.begin * (HEAD / 8) + threadIdx.x; n < part.end * (HEAD / 8); n += VARIANT_THREADS) {
        const uint32_t row = n / (HEAD / 8), chunk = n % (HEAD / 8);
        ((uint4_t*)(own.keys() + row * HEAD))[chunk] = load_shared(s.keys.at(row, chunk));
    }
}

// Leaves the warp's columns of the block: of the scores, or of the system.
__device__ __forceinline__ void multiply_keys(const Shared& s, Part part) {
    const Gates& gates = *s.gates;
    const uint32_t warp = threadIdx.x / WARP, block = warp % BLOCKS;
    const bool is_score = warp < BLOCKS;
    if (block > part.block()) return;
    const Tile<HEAD> rows = {opaque(is_score ? s.queries.base : s.keys.at(part.top(), 0))};
    const uint32_t of_b = opaque(block * OWN); // no address is kept for the next block
    float acc[N][4] = {};
    multiply(
        acc, STEPS, [&](uint32_t(&a)[4], uint32_t step) { rows.load_a(a, 0, step); },
        [&](uint32_t(&b)[4], uint32_t step, uint32_t) { s.keys.load_b_transposed(b, of_b, step); });
#pragma unroll
    for (uint32_t i = 0; i < 4 * N; i++) {
        const uint32_t n = i / 4, e = i % 4;
        const uint32_t row = part.top() + row_of(e), column = block * OWN + n * 8 + column_of(e);
        const float decay = column <= row ? decayed(gates.decay[row] - gates.decay[column]) : 0.0f;
        const float factor = decay * gates.of_key[column];
        if (is_score)
            acc[n][e] *= gates.of_query[row] * factor;
        else
            s.system[row * CHUNK + column] = -(gates.beta[row] * gates.of_key[row] * factor) * acc[n][e];
    }
    if (is_score) s.scores.store_rows(0, acc, {1.0f, 1.0f}, block * OWN);
}

// Appends the run's rows to the inverse by forward substitution: a thread owns a column.
__device__ __forceinline__ void substitute(const Shared& s, const Decoded& own, Part part) {
    const uint32_t column = threadIdx.x;
    if (column >= CHUNK) return;
    for (uint32_t row = part.begin; row < part.end; row++) {
        float sum = 0.0f;
#pragma unroll 8
        for (uint32_t other = column; other < row; other++)
            sum = fmaf(s.system[row * CHUNK + other], s.rows[other * CHUNK + column], sum);
        own.inverse()[row * CHUNK + column] = s.rows[row * CHUNK + column] = row == column ? 1.0f : sum;
    }
}

// Rounds the inverse to the tile in its place, behind a sync_block and before another; zeros behind the diagonal and
// behind the run.
__device__ __forceinline__ void round_inverse(const Shared& s, Part part) {
    enum : uint32_t { VECTORS = CHUNK * (CHUNK / 8) / VARIANT_THREADS };
    uint4_t packed[VECTORS];
#pragma unroll
    for (uint32_t v = 0; v < VECTORS; v++) {
        const uint32_t n = v * VARIANT_THREADS + threadIdx.x, row = n / (CHUNK / 8), first = n % (CHUNK / 8) * 8;
        float values[8] = {};
        if (row < part.end && first <= row) {
            const float4_t low = load4(s.rows + row * CHUNK + first), high = load4(s.rows + row * CHUNK + first + 4);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) values[i] = first + i <= row ? (i < 4 ? low : high).v[i % 4] : 0.0f;
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) packed[v].v[i] = pack_bf16x2(values[2 * i], values[2 * i + 1]);
    }
    sync_block();
#pragma unroll
    for (uint32_t v = 0; v < VECTORS; v++) {
        const uint32_t n = v * VARIANT_THREADS + threadIdx.x;
        store_shared(s.inverse.at(n / (CHUNK / 8), n % (CHUNK / 8)), packed[v]);
    }
}

// The warp's columns of the state, as operand b of each step.
struct StateFragments {
    uint4_t b[STEPS];

    // Of a step, in the rounded state.
    static __device__ __forceinline__ uint4_t* of(bf16* rounded, uint32_t step) {
        return (uint4_t*)rounded + (threadIdx.x / WARP * STEPS + step) * WARP + threadIdx.x % WARP;
    }
    __device__ __forceinline__ void load(bf16* rounded) {
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++) b[step] = *of(rounded, step);
    }
};

// Rows of the warp's columns that are of the run: `body(row, column, half, n)` of two neighboring elements each.
template <typename Body> __device__ __forceinline__ void each_pair(Part part, const Body& body) {
#pragma unroll
    for (uint32_t i = 0; i < 2 * N; i++) {
        const uint32_t half = i % 2, row = part.top() + row_of(2 * half);
        const uint32_t column = threadIdx.x / WARP * OWN + i / 2 * 8 + column_of(0);
        if (part.has(row)) body(row, column, half, i / 2);
    }
}

// acc = a S in the warp's columns, of 16 rows of a from `row`; zeros where there is no state.
__device__ __forceinline__ void read_state(float (&acc)[N][4], const Tile<HEAD>& a, uint32_t row,
                                           const StateFragments& state) {
    row = opaque(row); // no address is kept for the next block
#pragma unroll
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t fragment[4];
        a.load_a(fragment, row, step);
        mma(acc[0], fragment, state.b[step].v[0], state.b[step].v[1]);
        mma(acc[1], fragment, state.b[step].v[2], state.b[step].v[3]);
    }
}

// Replaces the warp's columns of the run's values by beta (v - predicted), which the slot keeps.
__device__ __forceinline__ void replace_values(const Shared& s, const Decoded& own, Part part,
                                               const StateFragments& state) {
    const Gates& gates = *s.gates;
    float read[N][4] = {};
    if (part.has_before) read_state(read, s.keys, part.top(), state);
    each_pair(part, [&](uint32_t row, uint32_t column, uint32_t half, uint32_t n) {
        const uint32_t value = s.change.load(row, column);
        const float by_key = decayed(gates.decay[row]) * gates.of_key[row], beta = gates.beta[row];
        float change[2];
#pragma unroll
        for (uint32_t e = 0; e < 2; e++) change[e] = unpack_bf16x2(value, e) - by_key * read[n][2 * half + e];
        const uint32_t packed = pack_bf16x2(beta * change[0], beta * change[1]);
        store_shared(s.change.at(row, column / 8) + column % 8 * 2, packed);
        *(uint32_t*)(own.change() + row * HEAD + column) = packed;
    });
}

// acc += a b in the warp's columns, of 16 rows of a from `row`, of the depth up to the diagonal, which is in block `m`.
__device__ __forceinline__ void multiply_chunk(float (&acc)[N][4], const Tile<CHUNK>& a, uint32_t row, uint32_t m,
                                               const Tile<HEAD>& b) {
    for (uint32_t step = 0; step <= m; step++) {
        uint32_t fragment[4], columns[4];
        a.load_a(fragment, row, step);
        b.load_b(columns, step * OWN, threadIdx.x / WARP * 2);
        mma(acc[0], fragment, columns[0], columns[1]);
        mma(acc[1], fragment, columns[2], columns[3]);
    }
}

// Stores the warp's columns of v_new of blocks `first` to `last`, times `factor(row)`.
template <typename Factor>
__device__ __forceinline__ void store_v_new(const Shared& s, uint32_t first, uint32_t last, const Factor& factor) {
    for (uint32_t m = first; m <= last; m++) {
        float v_new[N][4] = {};
        multiply_chunk(v_new, s.inverse, m * OWN, m, s.change);
        const uint32_t row = m * OWN + row_of(0);
        s.v_new.store_rows(m * OWN, v_new, {factor(row), factor(row + 8)}, threadIdx.x / WARP * OWN);
    }
}

// Writes the warp's columns of the run's rows.
__device__ __forceinline__ void write_rows(const Shared& s, const Decoded& own, Part part,
                                           const StateFragments& state) {
    const Gates& gates = *s.gates;
    float o[N][4] = {};
    if (part.has_before) read_state(o, s.queries, 0, state);
#pragma unroll
    for (uint32_t i = 0; i < 4 * N; i++) {
        const uint32_t row = part.top() + row_of(i % 4);
        o[i / 4][i % 4] *= decayed(gates.decay[row]) * gates.of_query[row];
    }
    multiply_chunk(o, s.scores, 0, part.block(), s.v_new);
    each_pair(part, [&](uint32_t row, uint32_t column, uint32_t half, uint32_t n) {
        const uint32_t packed = pack_bf16x2(o[n][2 * half], o[n][2 * half + 1]);
        *(uint32_t*)(own.o(part.index_of(row)) + column) = packed;
    });
}

// Moves the warp's columns of the state behind a full chunk.
__device__ __forceinline__ void move_state(const Shared& s, const Decoded& own, bool has_before) {
    const Gates& gates = *s.gates;
    const float last = gates.decay[CHUNK - 1], kept = decayed(last);
    sync_warp(); // v_new has been read
    store_v_new(s, 0, BLOCKS - 1, [&](uint32_t row) { return decayed(last - gates.decay[row]) * gates.of_key[row]; });
    sync_warp();
#pragma unroll 1
    for (uint32_t m = 0; m < HEAD / OWN; m++) {
        float acc[1][N][4] = {};
        float* state = own.state() + (m * OWN + row_of(0)) * HEAD + threadIdx.x / WARP * OWN + column_of(0);
#pragma unroll
        for (uint32_t i = 0; i < 4 * N; i++)
            if (has_before) acc[0][i / 4][i % 4] = kept * state[i % 4 / 2 * 8 * HEAD + i / 4 * 8 + i % 2];
        multiply(
            acc, BLOCKS,
            [&](uint32_t(&a)[4], uint32_t step, uint32_t) { s.keys.load_a_transposed(a, step * OWN, 2 * m); },
            [&](uint32_t(&b)[4], uint32_t step, uint32_t) {
                s.v_new.load_b(b, step * OWN, threadIdx.x / WARP * 2);
            });
#pragma unroll
        for (uint32_t i = 0; i < 4 * N; i++) state[i % 4 / 2 * 8 * HEAD + i / 4 * 8 + i % 2] = acc[0][i / 4][i % 4];
        // The rounded rows become fragments in the place of values, which have been read.
        const uint32_t row = m % BLOCKS * OWN;
        s.change.store_rows(row, acc[0], {1.0f, 1.0f}, threadIdx.x / WARP * OWN);
        sync_warp();
        uint32_t b[4];
        s.change.load_b(b, row, threadIdx.x / WARP * 2);
        *StateFragments::of(own.rounded(), m) = {b[0], b[1], b[2], b[3]};
    }
}

KERNEL(delta_rule_decode_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const Shared s(memory);
    begin_early();
    const Decoded own(p);
    if (own.run.slot == IDLE_SLOT && threadIdx.x < HEAD) own.o(0)[threadIdx.x] = from_float<bf16>(0.0f);

    StateFragments state;
    for (uint32_t index = 0; index < own.run.rows;) {
        const Part part(own.run, index);
        index += part.end - part.begin;
        copy(s, own, part);
        load_gates(s, own, part);
        cp_async_wait<0>();
        sync_block();
        load_factors(s, own, part);
        sync_block();
        multiply_keys(s, part);
        sync_block(); // the system is there
        if (part.is_first && part.has_before) state.load(own.rounded());
        substitute(s, own, part);
        replace_values(s, own, part, state);
        sync_block(); // the inverse is there, and the system has been read
        round_inverse(s, part);
        sync_block();
        store_v_new(s, part.is_first ? 0 : part.block(), part.block(), [](uint32_t) { return 1.0f; });
        sync_warp();
        write_rows(s, own, part, state);
        if (part.end == CHUNK) move_state(s, own, part.has_before);
        sync_block(); // tiles have been read
    }
}
