// Reduces the accumulators of a cluster's CTAs that split K, through distributed shared memory. CTA c % CLUSTER gets
// chunk c of `width` columns, and adds in the order of the CTAs: the same bits every time. The parts pass through the
// memory of the pipeline's stages. mbarriers say when that is free and when all parts are there: a cluster barrier
// would have to wait for all earlier stores to global memory.
#pragma once
#include "gemm/wgmma/scheduler.cuh"

struct ClusterReduction {
    uint32_t shared; // the stages' memory
    uint32_t ready, full, empty; // mbarriers: every CTA's mainloop is done; its parts have arrived; they have been read
    uint32_t parity; // parity of the next tile's phases

    __device__ __forceinline__ ClusterReduction(uint32_t stages, uint32_t barriers)
        : shared(stages), ready(barriers), full(barriers + 8), empty(barriers + 16), parity(0) {}
    __device__ __forceinline__ void init() const {
        mbarrier_init(ready, CLUSTER * CONSUMERS * 4);
        mbarrier_init(full, 1);
        mbarrier_init(empty, CONSUMERS * 4);
    }

    // For the producer warp: waits until the stages' memory is free again.
    __device__ __forceinline__ void wait_empty() {
        mbarrier_wait(empty, parity);
        parity ^= 1;
    }

    // Sums of int8 are not split.
    template <uint32_t width> __device__ __forceinline__ void reduce(int (&)[TILE_N / 8][4], uint32_t) {}
    // For the consumer warps, after their mainloop.
    template <uint32_t width>
    __device__ __forceinline__ void reduce(float (&accumulators)[TILE_N / 8][4], uint32_t rank) {
        enum : uint32_t { CHUNKS = TILE_N / width, QUADS = width / 8, BYTES = CONSUMERS * WARPGROUP * 16 };
        const uint32_t lane = threadIdx.x % WARP;
        // Address at which CTA `from` puts quad q of chunk c for this thread.
        const auto slot = [&](uint32_t c, uint32_t from, uint32_t q) {
            return shared + (((c / CLUSTER) * CLUSTER + from) * QUADS + q) * BYTES + threadIdx.x * 16;
        };
        if (threadIdx.x == 0) // (CLUSTER - 1) parts of each of its chunks
            mbarrier_arrive_expect_tx(full, (CHUNKS - rank + CLUSTER - 1) / CLUSTER * QUADS * BYTES * (CLUSTER - 1));
        if (lane < CLUSTER) mbarrier_arrive(ready, lane);
        mbarrier_wait(ready, parity);
#pragma unroll
        for (uint32_t c = 0; c < CHUNKS; c++)
            if (c % CLUSTER != rank)
#pragma unroll
                for (uint32_t q = 0; q < QUADS; q++) {
                    const float(&part)[4] = accumulators[c * QUADS + q];
                    st_async(slot(c, rank, q), c % CLUSTER, full, part[0], part[1], part[2], part[3]);
                }
        mbarrier_wait(full, parity);
#pragma unroll
        for (uint32_t c = 0; c < CHUNKS; c++)
            if (c % CLUSTER == rank)
#pragma unroll
                for (uint32_t q = 0; q < QUADS; q++) {
                    float(&own)[4] = accumulators[c * QUADS + q];
                    float total[4] = {};
#pragma unroll
                    for (uint32_t from = 0; from < CLUSTER; from++) {
                        float part[4] = {own[0], own[1], own[2], own[3]};
                        if (from != rank) load_shared(part, slot(c, from, q));
#pragma unroll
                        for (uint32_t e = 0; e < 4; e++) total[e] += part[e];
                    }
#pragma unroll
                    for (uint32_t e = 0; e < 4; e++) own[e] = total[e];
                }
        fence_proxy_async(); // TMA will write here again
        sync_warp();
        if (lane == 0) mbarrier_arrive(empty);
        parity ^= 1;
    }
};
