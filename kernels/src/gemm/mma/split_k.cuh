// Split-K: the CTAs that share a tile, each with its part of the depth, add their accumulators one after the other
// under a semaphore: an order that does not depend on timing. CTAs of earlier splits come first in the grid, so none
// waits for a CTA that has not started. (CUTLASS: "serial split-K".)
#pragma once
#include "gemm/mma/epilogue.cuh"

// Waits for the splits before this one, whose stores are then visible.
__device__ __forceinline__ void semaphore_wait(const uint32_t* semaphore, const WorkTile& work) {
    if (threadIdx.x == 0)
        while (load_acquire(semaphore) != work.index) {}
    sync_block();
}

// Lets the next split add. The last one leaves 0 for the next launch.
__device__ __forceinline__ void semaphore_release(uint32_t* semaphore, const WorkTile& work) {
    sync_block();
    if (threadIdx.x == 0) store_release(semaphore, work.last() ? 0 : work.index + 1);
}

// Address of a thread's accumulators of one 16 x 8 mma in the workspace: a tile is contiguous in the layout of mma.
__device__ __forceinline__ float* workspace_at(address workspace, const WorkTile& work, uint32_t m, uint32_t n) {
    const uint64_t block = (uint64_t(work.tile) * BLOCKS_M + m) * BLOCKS_N + n;
    return (float*)workspace + (block * THREADS + threadIdx.x) * 4;
}

// Adds the sum of the splits before this one.
__device__ __forceinline__ void add_workspace(Accumulators& acc, address workspace, const WorkTile& work) {
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++) {
        float4_t before[BLOCKS_N]; // in flight together
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++) before[n] = load4_cg(workspace_at(workspace, work, m, n));
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) acc.v[m][n][e] += before[n].v[e];
    }
}

__device__ __forceinline__ void store_workspace(const Accumulators& acc, address workspace, const WorkTile& work) {
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++) {
            const float (&v)[4] = acc.v[m][n];
            store4(workspace_at(workspace, work, m, n), {{v[0], v[1], v[2], v[3]}});
        }
}
