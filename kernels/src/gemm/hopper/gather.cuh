// How the blocks of a cluster add up the parts of a tile that each has summed over its part of the depth. Block
// c % CLUSTER gets chunk c of `width` columns, and adds in the order of the blocks.
// The parts pass through the memory of the slices. Barriers say when that is free and when all parts are there: a barrier
// of the cluster would have to wait for all earlier stores to global memory.
#pragma once
#include "hopper.cuh"
#include "gemm/hopper/schedule.cuh"

struct Gather {
    uint32_t shared; // the slices' memory
    uint32_t ready, arrived, read; // barriers: every block has multiplied; its parts are there; they have been read
    uint32_t turn; // parity of the next tile's phases

    __device__ __forceinline__ Gather(uint32_t slices, uint32_t barriers)
        : shared(slices), ready(barriers), arrived(barriers + 8), read(barriers + 16), turn(0) {}
    __device__ __forceinline__ void init() const {
        mbarrier_init(ready, CLUSTER * MULTIPLIERS * 4);
        mbarrier_init(arrived, 1);
        mbarrier_init(read, MULTIPLIERS * 4);
    }

    // For the warp that copies: waits until the slices' memory is its own again.
    __device__ __forceinline__ void await_read() {
        mbarrier_wait(read, turn);
        turn ^= 1;
    }

    // For the warps that multiply, once they have.
    template <uint32_t width, typename Sums> __device__ __forceinline__ void add(Sums& sum, uint32_t rank) {
        enum : uint32_t { CHUNKS = TILE_COLUMNS / width, QUADS = width / 8, BYTES = MULTIPLIERS * LANES * 16 };
        const uint32_t lane = threadIdx.x % WARP;
        // Where block `from` puts quad q of chunk c for this thread.
        const auto slot = [&](uint32_t c, uint32_t from, uint32_t q) {
            return shared + (((c / CLUSTER) * CLUSTER + from) * QUADS + q) * BYTES + threadIdx.x * 16;
        };
        if (threadIdx.x == 0) // (CLUSTER - 1) parts of each of its chunks
            mbarrier_arrive_expect_tx(arrived, (CHUNKS - rank + CLUSTER - 1) / CLUSTER * QUADS * BYTES * (CLUSTER - 1));
        if (lane < CLUSTER) mbarrier_arrive(ready, lane);
        mbarrier_wait(ready, turn);
#pragma unroll
        for (uint32_t c = 0; c < CHUNKS; c++)
            if (c % CLUSTER != rank)
#pragma unroll
                for (uint32_t q = 0; q < QUADS; q++) {
                    const float* part = &sum[(c * QUADS + q) * 4];
                    st_async(slot(c, rank, q), c % CLUSTER, arrived, part[0], part[1], part[2], part[3]);
                }
        mbarrier_wait(arrived, turn);
#pragma unroll
        for (uint32_t c = 0; c < CHUNKS; c++)
            if (c % CLUSTER == rank)
#pragma unroll
                for (uint32_t q = 0; q < QUADS; q++) {
                    float* own = &sum[(c * QUADS + q) * 4];
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
        fence_proxy_async(); // copies will write here again
        sync_warp();
        if (lane == 0) mbarrier_arrive(read);
        turn ^= 1;
    }
};
