// The product behind all three forms: C[i, j] = sum over r of A(i, r) B(r, j), bf16 in, f32 sums, on tensor cores.
// A block owns a tile of C, a warp a part of it; several slices of A and B are on their way while one is multiplied,
// and fragments are loaded one step ahead. Every sum runs over r in order; parts of the depth may go to several blocks.
// Source: NVIDIA, CUTLASS, "Efficient GEMM in CUDA" (multistage pipeline, swizzled shared memory).
#pragma once
#include "gemm.h"
#include "gemm/mma/panel.cuh"

// Enumerators for the reason device.cuh gives.
enum : uint32_t {
    TILE_M = VARIANT_TILE_M,
    TILE_N = VARIANT_TILE_N,
    WARP_M = 64, // with 64 columns a warp multiplies each fragment it loads four or eight times
    WARP_N = VARIANT_WARP_N,
    STAGES = VARIANT_STAGES,
    BLOCKS_M = WARP_M / 16, // of 16 rows
    BLOCKS_N = WARP_N / 8,  // of 8 columns
    STEPS = TILE_K / 16,
    GROUP = 16, // rows of tiles: what is computed at one time is about square, so that L2 serves most of its reads
};

// First row and column of C a warp owns, and its sums, laid out as mma leaves them.
struct Sums {
    uint32_t i0, j0;
    float v[BLOCKS_M][BLOCKS_N][4];
};

// What a block computes: a tile, or one of `count` parts of its depth. Earlier parts come first in the grid.
struct Part {
    uint32_t tile, index, count;
    __device__ __forceinline__ bool last() const { return index + 1 == count; }
};
__device__ __forceinline__ Part part_of_block(uint32_t splits) {
    const uint32_t count = splits > 1 ? splits : 1, tiles = gridDim.x / count;
    return {blockIdx.x % tiles, blockIdx.x / tiles, count};
}

// A matrix M(i, r), `extent` x `depth`: at data[i * row + r], or transposed at data[r * row + i].
struct Matrix {
    const void* data;
    uint32_t row, extent, depth;

    // Without the first `count` r.
    template <bool transposed> __device__ __forceinline__ Matrix after(uint32_t count) const {
        return {(const bf16*)data + uint64_t(count) * (transposed ? row : 1), row, extent, depth - count};
    }
};

// If `paired`, the upper half of a warp's columns are those that lie b.extent behind the lower half's.
template <bool a_transposed, bool b_transposed, bool paired = false>
__device__ __forceinline__ void multiply(const Matrix& whole_a, const Matrix& whole_b, const Part& part, Sums& sums) {
    static_assert(TILE_M / WARP_M * (TILE_N / WARP_N) * WARP == THREADS, "every warp has a part of the tile");
    static_assert(STEPS % 2 == 0, "fragments alternate between two sets of registers");
    extern __shared__ __align__(128) unsigned char slices[];
    typedef Panel<TILE_M, a_transposed, Side::a> PanelA;
    enum : uint32_t { PARTS = paired ? 2 : 1, COLUMNS = TILE_N / PARTS };
    typedef Panel<COLUMNS, b_transposed, Side::b> PanelB;
    enum : uint32_t { STAGE = PanelA::BYTES + PARTS * PanelB::BYTES };

    const uint32_t total = (whole_a.depth + TILE_K - 1) / TILE_K, begin = total * part.index / part.count;
    const uint32_t count = total * (part.index + 1) / part.count - begin;
    const Matrix ma = whole_a.after<a_transposed>(begin * TILE_K), mb = whole_b.after<b_transposed>(begin * TILE_K);

    // Blocks go down GROUP rows of tiles, then right.
    const uint32_t tiles_m = (ma.extent + TILE_M - 1) / TILE_M, tiles_n = (mb.extent + COLUMNS - 1) / COLUMNS;
    const uint32_t first = part.tile / (GROUP * tiles_n) * GROUP, within = part.tile % (GROUP * tiles_n);
    const uint32_t height = tiles_m - first < GROUP ? tiles_m - first : GROUP;
    const uint32_t i0 = (first + within % height) * TILE_M, j0 = within / height * COLUMNS;
    const uint32_t warp = threadIdx.x / WARP;
    const uint32_t warp_i = warp % (TILE_M / WARP_M) * WARP_M, warp_j = warp / (TILE_M / WARP_M) * (WARP_N / PARTS);
    sums.i0 = i0 + warp_i;
    sums.j0 = j0 + warp_j;
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) sums.v[m][n][e] = 0.0f;

    PanelA a(ma.data, ma.row, ma.extent, ma.depth, i0, warp_i);
    PanelB b(mb.data, mb.row, mb.extent, mb.depth, j0, warp_j);
    PanelB behind((const bf16*)mb.data + uint64_t(mb.extent) * mb.row, mb.row, mb.extent, mb.depth, j0, warp_j); // if paired
    uint32_t a_fragments[2][BLOCKS_M][4], b_fragments[2][BLOCKS_N / 2][4];
    const uint32_t base = shared_address(slices);
    const uint32_t end = base + STAGES * STAGE;
    uint32_t writing = base, reading = base; // stages in turn

    const auto fetch = [&](uint32_t slice) {
        if (slice < count) {
            a.fetch(writing);
            b.fetch(writing + PanelA::BYTES);
            if (paired) behind.fetch(writing + PanelA::BYTES + PanelB::BYTES);
        }
        cp_async_commit();
        writing += STAGE;
        if (writing == end) writing = base;
    };
    const auto load = [&](uint32_t set, uint32_t step) {
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++) a.load(a_fragments[set][m], reading, m, step);
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N / 2; n++) {
            const uint32_t part = n / (BLOCKS_N / 2 / PARTS), block = n % (BLOCKS_N / 2 / PARTS);
            (part == 0 ? b : behind).load(b_fragments[set][n], reading + PanelA::BYTES + part * PanelB::BYTES, block, step);
        }
    };

#pragma unroll
    for (uint32_t slice = 0; slice < STAGES - 1; slice++) fetch(slice);
    cp_async_wait<STAGES - 2>();
    sync_block();
    load(0, 0);
#pragma unroll 1
    for (uint32_t slice = 0; slice < count; slice++) {
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++) {
            if (step == STEPS - 1) {
                // All have read this stage, and the next one has arrived.
                cp_async_wait<STAGES - 2>();
                sync_block();
                reading += STAGE;
                if (reading == end) reading = base;
            }
            load((step + 1) % 2, (step + 1) % STEPS);
            if (step == 0) fetch(slice + STAGES - 1);
#pragma unroll
            for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
                for (uint32_t n = 0; n < BLOCKS_N; n++) {
                    const uint32_t (&pair)[4] = b_fragments[step % 2][n / 2];
                    mma(sums.v[m][n], a_fragments[step % 2][m], pair[n % 2 * 2], pair[n % 2 * 2 + 1]);
                }
        }
    }
}
