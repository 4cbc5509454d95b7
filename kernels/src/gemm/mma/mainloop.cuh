// The multistage GEMM behind all forms on tensor cores: C[i, j] = sum over r of A(i, r) B(r, j), bf16 in, f32
// accumulators. A CTA owns a tile of C, a warp a part of it; STAGES - 1 k-tiles of A and B are in flight by cp.async
// while one is multiplied by mma.sync, and fragments are loaded one step ahead. Every sum runs over r in order; split-K
// divides the depth among CTAs.
// Bound: tensor cores. A warp's 64 x 64 tile multiplies each fragment it loads four or eight times.
// Source: NVIDIA, CUTLASS, "Efficient GEMM in CUDA" (multistage pipeline, swizzled shared memory).
#pragma once
#include "gemm.h"
#include "gemm/mma/operand.cuh"
#include "gemm/raster.cuh"

// A 64 x 64 warp tile multiplies each loaded fragment four or eight times; memory-bound GEMMs use smaller ones.
#ifndef VARIANT_WARP_M
#define VARIANT_WARP_M 64
#endif

// Enumerators, for the reason in device.cuh.
enum : uint32_t {
    TILE_M = VARIANT_TILE_M,
    TILE_N = VARIANT_TILE_N,
    WARP_M = VARIANT_WARP_M,
    WARP_N = VARIANT_WARP_N,
    STAGES = VARIANT_STAGES,
    BLOCKS_M = WARP_M / 16, // 16 rows each
    BLOCKS_N = WARP_N / 8,  // 8 columns each
    STEPS = TILE_K / 16,
    RASTER_BAND = 16, // tile rows
};

// First row and column of C that a warp owns, and its accumulators in the layout of mma.
template <typename Sum> struct Sums {
    uint32_t i0, j0;
    Sum v[BLOCKS_M][BLOCKS_N][4];
};
typedef Sums<float> Accumulators;

// A CTA's work: a tile, or split `index` of `count` of its depth. Earlier splits come first in the grid.
struct WorkTile {
    uint32_t tile, index, count;
    __device__ __forceinline__ bool last() const { return index + 1 == count; }
};
__device__ __forceinline__ WorkTile work_of_cta(uint32_t splits) {
    const uint32_t count = splits > 1 ? splits : 1, tiles = gridDim.x / count;
    return {blockIdx.x % tiles, blockIdx.x / tiles, count};
}

// A matrix M(i, r), `extent` x `depth`: K-major at data[i * row + r], or MN-major at data[r * row + i].
struct Matrix {
    const void* data;
    uint32_t row, extent, depth;

    // Returns `count` r from `first` on, or as many as there are.
    template <bool mn> __device__ __forceinline__ Matrix part(uint32_t first, uint32_t count) const {
        return {(const bf16*)data + uint64_t(first) * (mn ? row : 1), row, extent, min(count, depth - first)};
    }
};

// The type of the sums selects the instruction. If `paired`, a warp's upper columns are b.extent after its lower ones.
template <bool a_mn, bool b_mn, bool paired = false, typename Sum>
__device__ __forceinline__ void
gemm(const Matrix& whole_a, const Matrix& whole_b, const WorkTile& work, Sums<Sum>& acc) {
    static_assert(TILE_M / WARP_M * (TILE_N / WARP_N) * WARP == THREADS, "every warp has a part of the tile");
    static_assert(STEPS % 2 == 0, "fragments alternate between two sets of registers");
    extern __shared__ __align__(128) unsigned char stages[];
    typedef Operand<TILE_M, a_mn, Fragment::a> OperandA;
    enum : uint32_t { PARTS = paired ? 2 : 1, COLUMNS = TILE_N / PARTS };
    typedef Operand<COLUMNS, b_mn, Fragment::b> OperandB;
    enum : uint32_t { STAGE_BYTES = OperandA::BYTES + PARTS * OperandB::BYTES };

    const uint32_t total = (whole_a.depth + TILE_K - 1) / TILE_K, begin = total * work.index / work.count;
    const uint32_t count = total * (work.index + 1) / work.count - begin;
    const Matrix ma = whole_a.part<a_mn>(begin * TILE_K, count * TILE_K);
    const Matrix mb = whole_b.part<b_mn>(begin * TILE_K, count * TILE_K);

    const uint32_t tiles_m = (ma.extent + TILE_M - 1) / TILE_M, tiles_n = (mb.extent + COLUMNS - 1) / COLUMNS;
    const TileIndex tile = rasterize<RASTER_BAND>(work.tile, tiles_m, tiles_n);
    const uint32_t i0 = tile.m * TILE_M, j0 = tile.n * COLUMNS;
    const uint32_t warp = threadIdx.x / WARP;
    const uint32_t warp_i = warp % (TILE_M / WARP_M) * WARP_M, warp_j = warp / (TILE_M / WARP_M) * (WARP_N / PARTS);
    acc.i0 = i0 + warp_i;
    acc.j0 = j0 + warp_j;
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) acc.v[m][n][e] = 0;

    OperandA a(ma.data, ma.row, ma.extent, ma.depth, i0, warp_i);
    OperandB b(mb.data, mb.row, mb.extent, mb.depth, j0, warp_j);
    // Read if paired.
    OperandB behind((const bf16*)mb.data + uint64_t(mb.extent) * mb.row, mb.row, mb.extent, mb.depth, j0, warp_j);
    uint32_t a_fragments[2][BLOCKS_M][4], b_fragments[2][BLOCKS_N / 2][4];
    const uint32_t base = shared_address(stages);
    const uint32_t end = base + STAGES * STAGE_BYTES;
    uint32_t writing = base, reading = base; // stages, round robin

    const auto copy = [&] {
        a.copy(writing);
        b.copy(writing + OperandA::BYTES);
        if (paired) behind.copy(writing + OperandA::BYTES + OperandB::BYTES);
        cp_async_commit();
        writing += STAGE_BYTES;
        if (writing == end) writing = base;
    };
    const auto load = [&](uint32_t set, uint32_t step) {
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++) a.load(a_fragments[set][m], reading, m, step);
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N / 2; n++) {
            const uint32_t part = n / (BLOCKS_N / 2 / PARTS), block = n % (BLOCKS_N / 2 / PARTS);
            const uint32_t operand = reading + OperandA::BYTES + part * OperandB::BYTES;
            (part == 0 ? b : behind).load(b_fragments[set][n], operand, block, step);
        }
    };

#pragma unroll
    for (uint32_t k_tile = 0; k_tile < STAGES - 1; k_tile++) copy(); // prologue
    cp_async_wait<STAGES - 2>();
    sync_block();
    load(0, 0);
#pragma unroll 1
    while (a.left > -int((STAGES - 1) * TILE_K)) { // until the multiplied k-tiles cover the depth
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++) {
            if (step == STEPS - 1) {
                // All warps have read this stage, and the next one has arrived.
                cp_async_wait<STAGES - 2>();
                sync_block();
                reading += STAGE_BYTES;
                if (reading == end) reading = base;
            }
            load((step + 1) % 2, (step + 1) % STEPS);
            if (step == 0) copy();
#pragma unroll
            for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
                for (uint32_t column = 0; column < BLOCKS_N; column++) {
                    // Back and forth: neighboring multiplications share a fragment, which the operand reuse cache still
                    // holds.
                    const uint32_t n = m % 2 ? BLOCKS_N - 1 - column : column;
                    const uint32_t (&pair)[4] = b_fragments[step % 2][n / 2];
                    mma(acc.v[m][n], a_fragments[step % 2][m], pair[n % 2 * 2], pair[n % 2 * 2 + 1]);
                }
        }
    }
}
