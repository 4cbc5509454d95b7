// GEMM of few tiles and long sums on sm_90a, both operands MN-major: every CTA owns a tile of 64 rows over the whole
// depth, so that no CTA waits for another's sums, and its two consumer warpgroups take half of each k-tile. The CTAs of
// a cluster are below each other: each loads its share of B's k-tile and multicasts it, since tiles this small would
// overload L2. Bound: tensor cores, close to L2. Source: NVIDIA, CUTLASS 3 (multicast, warp specialization).
#pragma once
#include "gemm/wgmma/mainloop.cuh"

// Adds the accumulators of the two warpgroups, in order. Each keeps half of the columns; the others' go through the
// scratch of the warp with the same rows.
template <uint32_t count>
__device__ __forceinline__ void
add_halves(float (&half)[count][4], const float (&accumulators)[2 * count][4], uint32_t scratch) {
    enum : uint32_t { BYTES = count * WARP * 16 }; // bytes per warp
    const uint32_t warpgroup = threadIdx.x / WARPGROUP;
    const uint32_t mine = scratch + threadIdx.x / WARP * BYTES + threadIdx.x % WARP * 16;
    const uint32_t theirs = warpgroup == 0 ? mine + 4 * BYTES : mine - 4 * BYTES;
#pragma unroll
    for (uint32_t q = 0; q < count; q++) {
        float other[4];
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const float left = accumulators[q][e], right = accumulators[count + q][e];
            half[q][e] = warpgroup == 0 ? left : right;
            other[e] = warpgroup == 0 ? right : left;
        }
        store_shared(mine + q * WARP * 16, other);
    }
    named_barrier_sync(1, 2 * WARPGROUP);
#pragma unroll
    for (uint32_t q = 0; q < count; q++) {
        float other[4];
        load_shared(other, theirs + q * WARP * 16);
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) half[q][e] += other[e];
    }
    named_barrier_sync(1, 2 * WARPGROUP); // the epilogue may use the scratch now
}

// maps: A and B. C has m rows, the sum runs over k. For `epilogue` see gemm().
template <typename Epilogue>
__device__ __forceinline__ void gemm_multicast(const tensor_map* maps, uint32_t m, uint32_t k, Epilogue& epilogue) {
    typedef OperandTile<TILE_M, true> A;
    typedef OperandTile<TILE_N, true> B;
    enum : uint32_t {
        STAGE_BYTES = A::BYTES + B::BYTES,
        STAGES = 8,
        WARPS = 8, // consumers
        SHARE = TILE_K * B::SLABS / CLUSTER, // rows of 128 bytes of B's k-tile that one CTA loads
        STEPS = TILE_K / 16 / 2, // steps of a warpgroup per k-tile
        HALF = TILE_N / 2,
    };
    static_assert(TILE_M == 64 && SHARE <= TILE_K && TILE_K % SHARE == 0, "a share is within one slab");
    static_assert(WARPS * Epilogue::SCRATCH == TILE_M * TILE_N * 4, "halves pass through the scratch");
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t a_stages = shared_address(shared), b_stages = a_stages + STAGES * A::BYTES;
    const uint32_t scratch = a_stages + STAGES * STAGE_BYTES, full = scratch + WARPS * Epilogue::SCRATCH;
    const uint32_t empty = full + STAGES * 8;

    const uint32_t warp = broadcast(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(maps, full, empty, 1, CLUSTER * WARPS);
        fence_mbarrier_init();
    }
    cluster_sync();
    begin_early();

    const uint32_t rank = cluster_cta_rank(), cluster = blockIdx.x / CLUSTER;
    const uint32_t clusters = (m + CLUSTER * TILE_M - 1) / (CLUSTER * TILE_M); // below each other
    const uint32_t row = (cluster % clusters * CLUSTER + rank) * TILE_M, column = cluster / clusters * TILE_N;
    const uint32_t k_tiles = (k + TILE_K - 1) / TILE_K;
    if (warp == WARPS) { // producer; not `&& lane == 0`: the other warps would no longer count as uniform
        const uint32_t share = rank * SHARE, slab = share / TILE_K;
        for (uint32_t k_tile = 0; lane == 0 && k_tile < k_tiles; k_tile++) {
            const uint32_t stage = k_tile % STAGES, barrier = full + stage * 8;
            mbarrier_wait(empty + stage * 8, k_tile / STAGES % 2 ^ 1);
            mbarrier_arrive_expect_tx(barrier, STAGE_BYTES);
            A::load(a_stages + stage * A::BYTES, maps, row, k_tile * TILE_K, barrier);
            tma_load_2d_multicast(b_stages + stage * B::BYTES + share * 128, maps + 1, column + slab * 64,
                                  k_tile * TILE_K + share % TILE_K, barrier, (1 << CLUSTER) - 1);
        }
    } else if (warp < WARPS) { // consumers
        const uint32_t warpgroup = warp / 4;
        float accumulators[TILE_N / 8][4] = {};
        // The last stages are not released: the other CTAs may have exited.
        const auto release = [&](uint32_t k_tile) {
            if (k_tile + STAGES < k_tiles && lane < CLUSTER) mbarrier_arrive(empty + k_tile % STAGES * 8, lane);
        };
        for (uint32_t k_tile = 0; k_tile < k_tiles; k_tile++) {
            const uint32_t stage = k_tile % STAGES;
            mbarrier_wait(full + stage * 8, k_tile / STAGES % 2);
            const uint64_t a = A::descriptor(a_stages + stage * A::BYTES);
            const uint64_t b = B::descriptor(b_stages + stage * B::BYTES);
            wgmma_fence();
#pragma unroll
            for (uint32_t step = 0; step < STEPS; step++) {
                const uint32_t at = warpgroup * STEPS + step;
                wgmma<true, true>(accumulators, a + at * (A::K_STEP >> 4), b + at * (B::K_STEP >> 4), true);
            }
            wgmma_commit();
            if (k_tile > 0) {
                wgmma_wait<1>();
                release(k_tile - 1);
            }
        }
        wgmma_wait<0>();
        float half[HALF / 8][4];
        add_halves(half, accumulators, scratch);
        epilogue.scratch = scratch + warp * Epilogue::SCRATCH;
        epilogue.begin(row + warp % 4 * 16, column + warp / 4 * HALF);
#pragma unroll
        for (uint32_t c = 0; c < HALF / Epilogue::CHUNK; c++)
            epilogue.store(c, chunk_of<Epilogue::CHUNK / 8>(half, c));
    }
}
