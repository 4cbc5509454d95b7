// The product behind all three forms on sm_90a: C[i, j] = sum over r of A(i, r) * B(r, j) from bf16 in f32.
// One warp keeps slices of A and B coming by tensor-map copies, across tiles; two warpgroups multiply them, 64 rows of a
// tile each, and store what they have summed.
#pragma once
#include "hopper.cuh"
#include "gemm.h"

enum : uint32_t {
    CLUSTER = VARIANT_CLUSTER,
    TILE_ROWS = VARIANT_TILE_M,
    TILE_COLUMNS = VARIANT_TILE_N,
    SLICE = VARIANT_TILE_K, // depth of a slice: 128 bytes, the widest swizzle
    PANEL = SLICE * 128, // bytes of 64 rows of a slice
    MULTIPLIERS = TILE_ROWS / 64, // warpgroups that multiply, 64 rows of a tile each
    LANES = 128, // threads of a warpgroup
    BAND = 16, // rows of tiles that are walked column by column, so that a wave's inputs stay in L2
    SHARED_BYTES = 227 * 1024,
};

// Which part of C a block computes next, and over which slices.
struct Work {
    uint32_t row, column, begin, end;
    bool split; // the blocks of the cluster share one tile, each over its part of the depth
};

// Every block walks its own list of whole tiles. If `splits`, what is no whole wave of tiles goes to clusters instead,
// whose blocks divide the depth, where that is faster.
template <bool splits> struct Schedule {
    uint32_t rows, columns, slices, rank, tiles, whole, index; // rows and columns of tiles
    bool split;

    __device__ __forceinline__ Schedule(uint32_t height, uint32_t width, uint32_t depth) {
        rows = (height + TILE_ROWS - 1) / TILE_ROWS;
        columns = (width + TILE_COLUMNS - 1) / TILE_COLUMNS;
        slices = (depth + SLICE - 1) / SLICE;
        rank = CLUSTER > 1 ? cluster_rank() : 0;
        tiles = rows * columns;
        whole = tiles;
        index = blockIdx.x;
        split = false;
        if (splits && CLUSTER > 1) {
            const uint32_t clusters = gridDim.x / CLUSTER, rest = tiles % gridDim.x;
            const uint32_t rounds = (rest + clusters - 1) / clusters; // each takes 1 / CLUSTER of a tile's time
            if (rounds < CLUSTER && slices >= 4 * CLUSTER) whole = tiles - rest;
        }
    }

    __device__ __forceinline__ bool next(Work& work) {
        if (splits && CLUSTER > 1 && !split && index >= whole) {
            split = true;
            index = whole + blockIdx.x / CLUSTER;
        }
        if (index >= tiles) return false;
        work.begin = 0;
        work.end = slices;
        work.split = splits && split;
        if (work.split) {
            work.begin = slices * rank / CLUSTER;
            work.end = slices * (rank + 1) / CLUSTER;
        }
        const uint32_t first = index / (BAND * columns) * BAND;
        const uint32_t height = min(uint32_t(BAND), rows - first);
        const uint32_t within = index - first * columns;
        work.row = (first + within % height) * TILE_ROWS;
        work.column = within / height * TILE_COLUMNS;
        index += work.split ? gridDim.x / CLUSTER : gridDim.x;
        return true;
    }
};

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
                load_box(shared + panel * PANEL, map, row + panel * 64, depth, barrier);
        } else {
            load_box(shared, map, depth, row, barrier);
        }
    }
    static __device__ __forceinline__ uint64_t at(uint32_t shared) {
        return across ? describe(shared, PANEL, 1024) : describe(shared, 16, 1024);
    }
};

// Adds up the parts of a tile that the blocks of a cluster have summed. Block c % CLUSTER gets chunk c of `width` columns,
// and adds in the order of the blocks.
template <uint32_t width, typename Sums>
__device__ __forceinline__ void gather(Sums& sum, uint32_t shared, uint32_t rank, uint32_t thread) {
    enum : uint32_t { CHUNKS = TILE_COLUMNS / width, QUADS = width / 8, BYTES = MULTIPLIERS * LANES * 16 };
    // Where block `from` puts quad q of chunk c for this thread.
    const auto slot = [&](uint32_t c, uint32_t from, uint32_t q) {
        return shared + (((c / CLUSTER) * CLUSTER + from) * QUADS + q) * BYTES + thread * 16;
    };
#pragma unroll
    for (uint32_t c = 0; c < CHUNKS; c++)
        if (c % CLUSTER != rank)
#pragma unroll
            for (uint32_t q = 0; q < QUADS; q++) {
                const uint32_t at = (c * QUADS + q) * 4;
                store_remote(slot(c, rank, q), c % CLUSTER, sum[at], sum[at + 1], sum[at + 2], sum[at + 3]);
            }
    sync_cluster();
#pragma unroll
    for (uint32_t c = 0; c < CHUNKS; c++)
        if (c % CLUSTER == rank)
#pragma unroll
            for (uint32_t q = 0; q < QUADS; q++) {
                const uint32_t at = (c * QUADS + q) * 4;
                float total[4] = {};
#pragma unroll
                for (uint32_t from = 0; from < CLUSTER; from++) {
                    uint4_t part = {};
                    if (from != rank) part = load_shared(slot(c, from, q));
#pragma unroll
                    for (uint32_t e = 0; e < 4; e++) total[e] += from == rank ? sum[at + e] : __uint_as_float(part.v[e]);
                }
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) sum[at + e] = total[e];
            }
    copy_fence(); // copies will write here again
}

// maps: A and B. C is rows x columns, the sum runs over depth. `store` takes the sums: begin(row, column), the thread's
// first, while the last products are under way, then chunk(c, sums) for each chunk of CHUNK columns; it may use SCRATCH
// bytes of shared memory a warp.
template <bool a_across, bool b_across, bool splits, typename Store>
__device__ __forceinline__ void product(const tensor_map* maps, uint32_t rows, uint32_t columns, uint32_t depth, Store& store) {
    typedef Slice<TILE_ROWS, a_across> A;
    typedef Slice<TILE_COLUMNS, b_across> B;
    enum : uint32_t {
        STAGE = A::BYTES + B::BYTES,
        OUT = MULTIPLIERS * 4 * Store::SCRATCH,
        FIT = (SHARED_BYTES - OUT - 1024) / STAGE,
        STAGES = FIT < 8 ? FIT : 8,
    };
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t a_slices = shared_address(shared), b_slices = a_slices + STAGES * A::BYTES;
    const uint32_t out = a_slices + STAGES * STAGE, filled = out + OUT, freed = filled + STAGES * 8;

    // Uniform in a warp, and the compiler should know.
    const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        prefetch(maps);
        prefetch(maps + 1);
        for (uint32_t stage = 0; stage < STAGES; stage++) {
            barrier_init(filled + stage * 8, 1);
            barrier_init(freed + stage * 8, MULTIPLIERS * 4);
        }
        barrier_init_fence();
    }
    sync_block();

    Schedule<splits> schedule(rows, columns, depth);
    Work work;
    uint32_t stage = 0, parity = 0;
    const auto advance = [&] {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    };

    if (warp >= MULTIPLIERS * 4) {
        give_registers<40>();
        const bool copies = warp == MULTIPLIERS * 4 && lane == 0;
        while (schedule.next(work)) {
            if (copies)
                for (uint32_t slice = work.begin; slice < work.end; slice++, advance()) {
                    const uint32_t barrier = filled + stage * 8;
                    barrier_wait(freed + stage * 8, parity ^ 1);
                    barrier_expect(barrier, STAGE);
                    A::load(a_slices + stage * A::BYTES, maps, work.row, slice * SLICE, barrier);
                    B::load(b_slices + stage * B::BYTES, maps + 1, work.column, slice * SLICE, barrier);
                }
            if (splits && CLUSTER > 1 && work.split) { // with the other warps below
                sync_warp();
                sync_cluster();
                sync_cluster();
                sync_threads(1, VARIANT_THREADS);
            }
        }
    } else {
        take_registers<232>();
        const uint32_t group = warp / 4;
        float sum[TILE_COLUMNS / 2];
        store.scratch = out + warp * Store::SCRATCH;
        const auto free = [&](uint32_t which) {
            if (lane == 0) barrier_arrive(freed + which * 8);
        };
        while (schedule.next(work)) {
            uint32_t before = 0;
            for (uint32_t slice = work.begin; slice < work.end; slice++, advance()) {
                barrier_wait(filled + stage * 8, parity);
                const uint64_t a = A::at(a_slices + stage * A::BYTES + group * PANEL), b = B::at(b_slices + stage * B::BYTES);
                product_fence();
#pragma unroll
                for (uint32_t step = 0; step < SLICE / 16; step++)
                    multiply<a_across, b_across>(sum, a + step * (A::STEP >> 4), b + step * (B::STEP >> 4),
                                                 slice != work.begin || step != 0);
                product_commit();
                if (slice != work.begin) {
                    product_wait<1>();
                    free(before);
                }
                before = stage;
            }
            store.begin(work.row + warp * 16, work.column);
            product_wait<0>();
            free(before);
            if (splits && CLUSTER > 1 && work.split) {
                sync_cluster(); // every block has multiplied: the slices' memory is free
                gather<Store::CHUNK>(sum, a_slices, schedule.rank, threadIdx.x);
                sync_threads(1, VARIANT_THREADS); // every warp has read what the block was sent
            }
#pragma unroll
            for (uint32_t c = 0; c < TILE_COLUMNS / Store::CHUNK; c++) {
                if (splits && CLUSTER > 1 && work.split && c % CLUSTER != schedule.rank) continue;
                float value[Store::CHUNK / 2];
#pragma unroll
                for (uint32_t e = 0; e < Store::CHUNK / 2; e++) value[e] = sum[c * (Store::CHUNK / 2) + e];
                store.chunk(c, value);
            }
        }
    }
}
