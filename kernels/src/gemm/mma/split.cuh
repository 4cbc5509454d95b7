// Parts of the depth that share a tile, each in a block of its own, add what they have summed one after the other: an
// order that does not depend on timing. Blocks of earlier parts come first in the grid, so nobody waits for a block that
// has not started.
#pragma once
#include "gemm/mma/store.cuh"

// Until it is this part's turn. What the parts before it have stored is visible then.
__device__ __forceinline__ void wait_turn(const uint32_t* turn, const Part& part) {
    if (threadIdx.x == 0)
        while (load_acquire(turn) != part.index) {}
    sync_block();
}

// The next part's turn; after the last one the turn is 0 again.
__device__ __forceinline__ void pass_turn(uint32_t* turn, const Part& part) {
    sync_block();
    if (threadIdx.x == 0) store_release(turn, part.last() ? 0 : part.index + 1);
}

// Where a thread keeps its sums of a block of 16 x 8: those of a tile lie together, as mma leaves them.
__device__ __forceinline__ float* partial(address partials, const Part& part, uint32_t m, uint32_t n) {
    const uint64_t block = (uint64_t(part.tile) * BLOCKS_M + m) * BLOCKS_N + n;
    return (float*)partials + (block * THREADS + threadIdx.x) * 4;
}

// Adds what the parts before this one have summed.
__device__ __forceinline__ void add_partials(Sums& sums, address partials, const Part& part) {
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++) {
        float4_t before[BLOCKS_N]; // under way at one time
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++) before[n] = load4_fresh(partial(partials, part, m, n));
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) sums.v[m][n][e] += before[n].v[e];
    }
}

__device__ __forceinline__ void store_partials(const Sums& sums, address partials, const Part& part) {
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++) {
            const float (&v)[4] = sums.v[m][n];
            store4(partial(partials, part, m, n), {{v[0], v[1], v[2], v[3]}});
        }
}
