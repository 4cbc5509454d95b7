// Inverse and scores of a chunk, which depend on no other: a CTA for each chunk and value head. Tensor cores multiply
// raw queries and keys, whose factors come to the sums. (I + A)^-1 by forward substitution in f32: a column depends on
// no other, so each warp takes 16 of them from their diagonal down, without barriers. Two lanes share a column: of each
// block of 16 rows they sum what the rows before it give, half of the rows each, and then both go through the block.
// Bound: memory, next to it the latency of the substitution, which other CTAs of the multiprocessor hide.
// Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/gates.cuh"
#include "delta_rule/mma/tile.cuh"

enum : uint32_t {
    BLOCK = 16,        // rows of a warp, and of a step of the substitution
    PITCH = CHUNK + 4, // floats from column to column of the system: stores of a warp meet no bank twice
};

// An element of the system is at [column][row], negated: its elements are summed with those of the inverse.
__device__ __forceinline__ void substitute(const float* system, float* inverse) {
    const uint32_t lane = threadIdx.x % WARP, half = lane / BLOCK;
    const uint32_t diagonal = threadIdx.x / WARP * BLOCK, column = diagonal + lane % BLOCK;
    for (uint32_t block = diagonal; block < CHUNK; block += BLOCK) {
        const uint32_t first = block + half * (BLOCK / 2);
        float own[BLOCK / 2]; // begins as the identity's
#pragma unroll
        for (uint32_t i = 0; i < BLOCK / 2; i++) own[i] = first + i == column ? 1.0f : 0.0f;
        const float *factors = system + diagonal * PITCH + first, *solved = inverse + diagonal * CHUNK + column;
#pragma unroll 4
        for (uint32_t row = diagonal; row < block; row++, factors += PITCH, solved += CHUNK) {
            const float4_t low = load4(factors), high = load4(factors + 4);
            const float by = *solved;
#pragma unroll
            for (uint32_t i = 0; i < BLOCK / 2; i++) own[i] = fmaf((i < 4 ? low : high).v[i % 4], by, own[i]);
        }
        float sums[BLOCK];
#pragma unroll
        for (uint32_t i = 0; i < BLOCK / 2; i++) {
            const float other = shuffle_xor(own[i], BLOCK);
            sums[i] = half == 0 ? own[i] : other;
            sums[i + BLOCK / 2] = half == 0 ? other : own[i];
        }
#pragma unroll
        for (uint32_t row = 0; row < BLOCK; row++) {
#pragma unroll
            for (uint32_t four = row / 4 * 4; four < BLOCK; four += 4) {
                if (four + 3 == row) continue;
                const float4_t factors = load4(system + (block + row) * PITCH + block + four);
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    if (four + i > row) sums[four + i] = fmaf(factors.v[i], sums[row], sums[four + i]);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < BLOCK / 2; i++)
            inverse[(block + half * (BLOCK / 2) + i) * CHUNK + column] = half == 0 ? sums[i] : sums[i + BLOCK / 2];
        sync_warp(); // the other half's rows
    }
}

// Writes the inverse; what is behind the diagonal is in no column.
__device__ __forceinline__ void write_inverse(const float* inverse, bf16* out, uint64_t stride, uint32_t rows) {
    for (uint32_t n = threadIdx.x; n < rows * (CHUNK / 8); n += VARIANT_THREADS) {
        const uint32_t row = n / (CHUNK / 8), first = n % (CHUNK / 8) * 8;
        float values[8] = {};
        if (first / BLOCK <= row / BLOCK) {
            const float4_t low = load4(inverse + row * CHUNK + first), high = load4(inverse + row * CHUNK + first + 4);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) values[i] = (i < 4 ? low : high).v[i % 4];
        }
        store_vector(out + row * stride, first / 8, values);
    }
}

KERNEL(delta_rule_solve_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const Tile<HEAD> queries = {shared_address(memory)}, keys = {queries.base + Tile<HEAD>::bytes(CHUNK)};
    float* inverse = (float*)memory; // once the queries have been read
    float* system = inverse + CHUNK * CHUNK;
    Gates& gates = *(Gates*)(system + CHUNK * PITCH);
    const uint32_t head = blockIdx.x % p.value_heads, key_head = head / (p.value_heads / p.key_heads);
    const uint32_t warp = threadIdx.x / WARP;
    const Chunk chunk = chunk_of(p.sequences, p.count, blockIdx.x / p.value_heads);
    if (chunk.rows == 0) return;
    const uint32_t stride = (2 * p.key_heads + p.value_heads) * HEAD;
    const bf16* qkv = (const bf16*)p.qkv + uint64_t(chunk.first) * stride + key_head * HEAD;

    queries.copy<CHUNK>(qkv, stride, chunk.rows);
    keys.copy<CHUNK>(qkv + p.key_heads * HEAD, stride, chunk.rows);
    cp_async_commit();
    solve_gates(p, gates, chunk, head);
    cp_async_wait<0>();
    sync_block();
    solve_factors(p, gates, chunk, head, [&](bool is_query, uint32_t row) {
        return [=](uint32_t i) {
            const uint4_t packed = load_shared((is_query ? queries : keys).at(row, i));
            return vector<bf16, 8>{packed.v[0], packed.v[1], packed.v[2], packed.v[3]};
        };
    });

    // Two neighboring blocks of eight columns a pair; those behind the warp's rows are 0.
    float scores[CHUNK / 8][4] = {}, of_keys[CHUNK / 8][4] = {};
#pragma unroll
    for (uint32_t step = 0; step < HEAD / 16; step++) {
        uint32_t query[4], key[4];
        queries.load_a(query, warp * BLOCK, step);
        keys.load_a(key, warp * BLOCK, step);
#pragma unroll
        for (uint32_t pair = 0; pair < CHUNK / 16; pair++) {
            if (pair > warp) continue;
            uint32_t b[4];
            keys.load_b_transposed(b, pair * 16, step);
            mma(scores[2 * pair], query, b[0], b[1]);
            mma(scores[2 * pair + 1], query, b[2], b[3]);
            mma(of_keys[2 * pair], key, b[0], b[1]);
            mma(of_keys[2 * pair + 1], key, b[2], b[3]);
        }
    }
    sync_block(); // tiles have been read, and factors are there

    // Values of the lane's two rows, read once: the compiler keeps none across the stores to the system.
    float decay[2], of_query[2], of_key[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t row = warp * BLOCK + row_of(2 * half);
        decay[half] = gates.decay[row], of_query[half] = gates.of_query[row];
        of_key[half] = gates.beta[row] * gates.of_key[row];
    }
    // Scores take the place of the warp's own queries.
    const Tile<CHUNK> staged = {queries.base + warp * Tile<HEAD>::bytes(BLOCK)};
#pragma unroll
    for (uint32_t n = 0; n < CHUNK / 8; n++) {
        if (n / 2 <= warp) {
            const uint32_t first = n * 8 + column_of(0);
            const float decays[2] = {gates.decay[first], gates.decay[first + 1]};
            const float keys_of[2] = {gates.of_key[first], gates.of_key[first + 1]};
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const uint32_t row = warp * BLOCK + row_of(e), column = first + e % 2, half = e / 2;
                const float grown = column <= row ? decayed(decay[half] - decays[e % 2]) : 0.0f;
                const float factor = grown * keys_of[e % 2];
                scores[n][e] *= of_query[half] * factor;
                system[column * PITCH + row] = -(of_key[half] * factor) * of_keys[n][e];
            }
        }
    }
    staged.store_rows(0, scores);
    sync_warp();
    const uint64_t out = (uint64_t(chunk.first) * p.value_heads + head) * CHUNK, out_stride = p.value_heads * CHUNK;
    staged.write_rows<BLOCK>(0, (bf16*)p.scores + out + warp * BLOCK * out_stride, out_stride, chunk.rows_of_warp());
    sync_block(); // the system is there, and scores have been written
    substitute(system, inverse);
    sync_block();
    write_inverse(inverse, (bf16*)p.inverse + out, out_stride, chunk.rows);
}
