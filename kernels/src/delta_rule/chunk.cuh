// The chunks of sequences that lie end to end: no list of them is in memory, as each CTA finds its own.
#pragma once
#include "delta_rule.h"
#include "sequence.cuh"

enum : uint32_t { CHUNK = DELTA_CHUNK, HEAD = DELTA_HEAD };

// Tokens of a sequence that are computed together; no rows behind the last chunk of all.
struct Chunk {
    uint32_t first, rows;    // place of its first token, and tokens
    bool has_before, has_behind; // other chunks of its sequence

    // Index of the state before it, and of that behind it. Full chunks do not overlap, so that no two of them begin
    // between the same multiples of their length.
    __device__ __forceinline__ uint32_t before() const { return (first - CHUNK) / CHUNK; }
    __device__ __forceinline__ uint32_t behind() const { return first / CHUNK; }

    // Tokens of the 16 rows that are the calling warp's.
    __device__ __forceinline__ uint32_t rows_of_warp() const {
        const uint32_t before = threadIdx.x / WARP * 16;
        return rows < before ? 0 : rows - before < 16 ? rows - before : 16;
    }
};

// Returns chunk `index` of a sequence.
__device__ __forceinline__ Chunk chunk_of(Sequence own, uint32_t index) {
    const uint32_t start = index * CHUNK, rest = own.length - start;
    return {own.first + start, rest < CHUNK ? rest : uint32_t(CHUNK), index > 0, rest > CHUNK};
}

// Returns chunk `index` of those of all sequences, in their order.
__device__ __forceinline__ Chunk chunk_of(address sequences, uint32_t count, uint32_t index) {
    const Sequence* all = (const Sequence*)sequences;
    const uint32_t lane = threadIdx.x % WARP;
    for (uint32_t base = 0, before = 0; base < count; base += WARP) {
        const uint32_t chunks = base + lane < count ? (all[base + lane].length + CHUNK - 1) / CHUNK : 0;
        const uint32_t sum = before + inclusive_sum(chunks);
        const uint32_t done = count_lanes(sum <= index); // sequences whose chunks all come before
        if (done < WARP) {
            if (base + done >= count) break;
            const uint32_t start = shuffle(sum - chunks, done);
            const Sequence own = all[base + done];
            return chunk_of({broadcast(own.first), broadcast(own.length)}, broadcast(index - start));
        }
        if (shuffle(chunks, WARP - 1) == 0) break; // the longest sequences come first
        before = shuffle(sum, WARP - 1);
    }
    return {};
}
