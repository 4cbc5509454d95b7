// Products of few tiles and long sums on sm_90a, both operands across the depth: every block sums a tile of 64 rows over
// the whole depth, so that no block has a sum to wait for, and its two warpgroups multiply half of a slice each. The
// blocks of a cluster are below each other: each copies its share of B's slice to all, as small tiles would ask too much
// of L2.
#pragma once
#include "gemm/hopper/product.cuh"

// Adds the sums of the two warpgroups, those of the first one first. Each keeps half of the columns; the others' go through
// the scratch of the warp that has the same rows.
template <uint32_t count>
__device__ __forceinline__ void add_halves(float (&half)[count], const float (&sum)[2 * count], uint32_t scratch) {
    enum : uint32_t { QUADS = count / 4, BYTES = QUADS * WARP * 16 }; // of a warp
    const uint32_t group = threadIdx.x / LANES, mine = scratch + threadIdx.x / WARP * BYTES + threadIdx.x % WARP * 16;
    const uint32_t theirs = group == 0 ? mine + 4 * BYTES : mine - 4 * BYTES;
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        float other[4];
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const float left = sum[q * 4 + e], right = sum[count + q * 4 + e];
            half[q * 4 + e] = group == 0 ? left : right;
            other[e] = group == 0 ? right : left;
        }
        store_shared(mine + q * WARP * 16, other);
    }
    named_barrier_sync(1, 2 * LANES);
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        float other[4];
        load_shared(other, theirs + q * WARP * 16);
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) half[q * 4 + e] += other[e];
    }
    named_barrier_sync(1, 2 * LANES); // the scratch is the store's now
}

// maps: A and B. C has `rows`, the sum runs over depth. For `store` see product().
template <typename Store>
__device__ __forceinline__ void product_multicast(const tensor_map* maps, uint32_t rows, uint32_t depth, Store& store) {
    typedef Slice<TILE_ROWS, true> A;
    typedef Slice<TILE_COLUMNS, true> B;
    enum : uint32_t {
        STAGE = A::BYTES + B::BYTES,
        STAGES = 8,
        WARPS = 8, // that multiply
        SHARE = SLICE * B::PANELS / CLUSTER, // rows of 128 bytes of B's slice that one block copies
        STEPS = SLICE / 16 / 2, // of a warpgroup in a slice
        HALF = TILE_COLUMNS / 2,
    };
    static_assert(TILE_ROWS == 64 && SHARE <= SLICE && SLICE % SHARE == 0, "a share is of one panel");
    static_assert(WARPS * Store::SCRATCH == TILE_ROWS * TILE_COLUMNS * 4, "halves pass through the scratch");
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t a_slices = shared_address(shared), b_slices = a_slices + STAGES * A::BYTES;
    const uint32_t out = a_slices + STAGES * STAGE, filled = out + WARPS * Store::SCRATCH, freed = filled + STAGES * 8;

    // Uniform in a warp, and the compiler should know.
    const uint32_t warp = broadcast(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        prepare<STAGES>(maps, filled, freed, CLUSTER * WARPS);
        fence_mbarrier_init();
    }
    cluster_sync();

    const uint32_t rank = cluster_cta_rank(), cluster = blockIdx.x / CLUSTER;
    const uint32_t clusters = (rows + CLUSTER * TILE_ROWS - 1) / (CLUSTER * TILE_ROWS); // below each other
    const uint32_t row = (cluster % clusters * CLUSTER + rank) * TILE_ROWS, column = cluster / clusters * TILE_COLUMNS;
    const uint32_t slices = (depth + SLICE - 1) / SLICE;
    if (warp == WARPS) { // not `&& lane == 0`: the other warps would no longer count as uniform
        const uint32_t share = rank * SHARE, panel = share / SLICE;
        for (uint32_t slice = 0; lane == 0 && slice < slices; slice++) {
            const uint32_t stage = slice % STAGES, barrier = filled + stage * 8;
            mbarrier_wait(freed + stage * 8, slice / STAGES % 2 ^ 1);
            mbarrier_arrive_expect_tx(barrier, STAGE);
            A::load(a_slices + stage * A::BYTES, maps, row, slice * SLICE, barrier);
            tma_load_2d_multicast(b_slices + stage * B::BYTES + share * 128, maps + 1, column + panel * 64, slice * SLICE + share % SLICE,
                     barrier, (1 << CLUSTER) - 1);
        }
    } else if (warp < WARPS) {
        const uint32_t group = warp / 4;
        float sum[TILE_COLUMNS / 2] = {};
        // Nobody waits for the last slices to be free: the other blocks may be gone.
        const auto free = [&](uint32_t slice) {
            if (slice + STAGES < slices && lane < CLUSTER) mbarrier_arrive(freed + slice % STAGES * 8, lane);
        };
        for (uint32_t slice = 0; slice < slices; slice++) {
            const uint32_t stage = slice % STAGES;
            mbarrier_wait(filled + stage * 8, slice / STAGES % 2);
            const uint64_t a = A::at(a_slices + stage * A::BYTES), b = B::at(b_slices + stage * B::BYTES);
            wgmma_fence();
#pragma unroll
            for (uint32_t step = 0; step < STEPS; step++) {
                const uint32_t at = group * STEPS + step;
                wgmma<true, true>(sum, a + at * (A::STEP >> 4), b + at * (B::STEP >> 4), true);
            }
            wgmma_commit();
            if (slice > 0) {
                wgmma_wait<1>();
                free(slice - 1);
            }
        }
        wgmma_wait<0>();
        float half[HALF / 2];
        add_halves(half, sum, out);
        store.scratch = out + warp * Store::SCRATCH;
        store.begin(row + warp % 4 * 16, column + warp / 4 * HALF);
#pragma unroll
        for (uint32_t c = 0; c < HALF / Store::CHUNK; c++) {
            float value[Store::CHUNK / 2];
#pragma unroll
            for (uint32_t e = 0; e < Store::CHUNK / 2; e++) value[e] = half[c * (Store::CHUNK / 2) + e];
            store.chunk(c, value);
        }
    }
}
