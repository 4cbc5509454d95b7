// The product behind all three forms on sm_90a: C[i, j] = sum over r of A(i, r) * B(r, j) from bf16 in f32.
// One warp keeps slices of A and B coming by tensor-map copies, across tiles; two warpgroups multiply them, 64 rows of a
// tile each, and store what they have summed.
#pragma once
#include "gemm/hopper/gather.cuh"

// An operand in shared memory: `rows` rows of a slice. If it runs along the depth it is a row of 128 bytes after the
// other; if across, panels of 64 rows, each a step of depth after the other.
template <uint32_t rows, bool across> struct Slice {
    enum : uint32_t {
        PANELS = (rows + 63) / 64,
        BYTES = across ? uint32_t(PANELS) * PANEL : rows * 128,
        STEP = across ? 16 * 128 : 32, // bytes from one product of depth 16 to the next
    };

    static __device__ __forceinline__ void load(uint32_t shared, const tensor_map* map, uint32_t row, uint32_t depth,
                                                uint32_t barrier) {
        if (across) {
#pragma unroll
            for (uint32_t panel = 0; panel < PANELS; panel++)
                tma_load_2d(shared + panel * PANEL, map, row + panel * 64, depth, barrier);
        } else {
            tma_load_2d(shared, map, depth, row, barrier);
        }
    }
    // The part that `rank` has of them, for all blocks of the cluster: of an operand that runs along the depth.
    static __device__ __forceinline__ void share(uint32_t shared, const tensor_map* map, uint32_t row, uint32_t depth,
                                                 uint32_t barrier, uint32_t rank) {
        static_assert(!across && rows % (8 * CLUSTER) == 0, "parts of whole swizzles");
        enum : uint32_t { ROWS = rows / CLUSTER };
        tma_load_2d_multicast(shared + rank * ROWS * 128, map, depth, row + rank * ROWS, barrier, (1 << CLUSTER) - 1);
    }
    static __device__ __forceinline__ uint64_t at(uint32_t shared) {
        return across ? smem_descriptor(shared, PANEL, 1024) : smem_descriptor(shared, 16, 1024);
    }
};

// For one thread: barriers of the stages, of which one is free again when so many warps have said so, and both maps.
template <uint32_t stages>
__device__ __forceinline__ void prepare(const tensor_map* maps, uint32_t filled, uint32_t freed, uint32_t warps) {
    prefetch_tensor_map(maps);
    prefetch_tensor_map(maps + 1);
    for (uint32_t stage = 0; stage < stages; stage++) {
        mbarrier_init(filled + stage * 8, 1);
        mbarrier_init(freed + stage * 8, warps);
    }
}

// maps: A and B. C is rows x columns, the sum runs over depth. `store` takes the sums: begin(row, column), the thread's
// first, while the last products are under way, then chunk(c, sums) for each chunk of CHUNK columns; it may use SCRATCH
// bytes of shared memory a warp. If the store is PAIRED, B has twice the columns: half of a tile's are those `columns` behind
// the other half, and chunks come as pairs.
template <bool a_across, bool b_across, bool splits, typename Store>
__device__ __forceinline__ void product(const tensor_map* maps, uint32_t rows, uint32_t columns, uint32_t depth, Store& store) {
    typedef Slice<TILE_ROWS, a_across> A;
    typedef Slice<TILE_COLUMNS, b_across> B;
    typedef Slice<Store::PAIRED ? TILE_COLUMNS / 2 : TILE_COLUMNS, b_across> Part; // what one copy brings of B
    enum : uint32_t {
        PARTS = Store::PAIRED ? 2 : 1,
        STAGE = A::BYTES + B::BYTES,
        OUT = MULTIPLIERS * 4 * Store::SCRATCH,
        FIT = (SHARED_BYTES - OUT - 1024) / STAGE,
        STAGES = FIT < 8 ? FIT : 8,
    };
    enum : bool { SHARES = CLUSTER > 1 && !splits }; // the blocks of a cluster have B in common
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t a_slices = shared_address(shared), b_slices = a_slices + STAGES * A::BYTES;
    const uint32_t out = a_slices + STAGES * STAGE, filled = out + OUT, freed = filled + STAGES * 8;
    Gather gather(a_slices, freed + STAGES * 8);

    // Uniform in a warp, and the compiler should know.
    const uint32_t warp = broadcast(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        prepare<STAGES>(maps, filled, freed, MULTIPLIERS * 4 * (SHARES ? CLUSTER : 1));
        if (splits) gather.init();
        fence_mbarrier_init();
    }
    CLUSTER > 1 ? cluster_sync() : sync_block();

    Schedule<splits, TILE_COLUMNS / PARTS> schedule(rows, columns, depth);
    Work work;
    uint32_t stage = 0, parity = 0;
    const auto advance = [&] {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    };

    if (warp >= MULTIPLIERS * 4) {
        setmaxnreg_dec<40>();
        const bool copies = warp == MULTIPLIERS * 4 && lane == 0;
        while (schedule.next(work)) {
            if (copies)
                for (uint32_t slice = work.begin; slice < work.end; slice++, advance()) {
                    const uint32_t barrier = filled + stage * 8;
                    mbarrier_wait(freed + stage * 8, parity ^ 1);
                    mbarrier_arrive_expect_tx(barrier, STAGE);
                    A::load(a_slices + stage * A::BYTES, maps, work.row, slice * SLICE, barrier);
                    for (uint32_t part = 0; part < PARTS; part++) {
                        const uint32_t to = b_slices + stage * B::BYTES + part * Part::BYTES, row = work.column + part * columns;
                        if constexpr (SHARES) Part::share(to, maps + 1, row, slice * SLICE, barrier, schedule.rank);
                        else Part::load(to, maps + 1, row, slice * SLICE, barrier);
                    }
                }
            if (copies && work.split) gather.await_read();
        }
    } else {
        setmaxnreg_inc<232>();
        const uint32_t group = warp / 4;
        float sum[TILE_COLUMNS / 2];
        store.scratch = out + warp * Store::SCRATCH;
        const auto free = [&](uint32_t which) {
            if (SHARES) {
                if (lane < CLUSTER) mbarrier_arrive(freed + which * 8, lane);
            } else if (lane == 0) {
                mbarrier_arrive(freed + which * 8);
            }
        };
        while (schedule.next(work)) {
            uint32_t before = 0;
            for (uint32_t slice = work.begin; slice < work.end; slice++, advance()) {
                mbarrier_wait(filled + stage * 8, parity);
                const uint64_t a = A::at(a_slices + stage * A::BYTES + group * PANEL), b = B::at(b_slices + stage * B::BYTES);
                wgmma_fence();
#pragma unroll
                for (uint32_t step = 0; step < SLICE / 16; step++)
                    wgmma<a_across, b_across>(sum, a + step * (A::STEP >> 4), b + step * (B::STEP >> 4),
                                                 slice != work.begin || step != 0);
                wgmma_commit();
                if (slice != work.begin) {
                    wgmma_wait<1>();
                    free(before);
                }
                before = stage;
            }
            store.begin(work.row + warp * 16, work.column);
            wgmma_wait<0>();
            free(before);
            if (work.split) gather.add<Store::CHUNK>(sum, schedule.rank);
            sync_warp(); // lanes may still read what they stored of the last tile
#pragma unroll
            for (uint32_t c = 0; c < TILE_COLUMNS / Store::CHUNK / PARTS; c++) {
                if (work.split) {
                    if (c % CLUSTER != schedule.rank) continue;
                    sync_warp(); // those in between are skipped: lanes may still read the slot that this one takes
                }
                float value[PARTS][Store::CHUNK / 2];
#pragma unroll
                for (uint32_t part = 0; part < PARTS; part++)
#pragma unroll
                    for (uint32_t e = 0; e < Store::CHUNK / 2; e++)
                        value[part][e] = sum[(part * (TILE_COLUMNS / 2 / Store::CHUNK) + c) * (Store::CHUNK / 2) + e];
                if constexpr (Store::PAIRED) store.chunk(c, value[0], value[1]);
                else store.chunk(c, value[0]);
            }
        }
    }
    if (SHARES) cluster_sync(); // others may still write here
}
