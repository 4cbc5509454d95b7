// Epilogue that adds accumulators to the previous values, whose loads start before the GEMM, as they are most of
// what a CTA reads.
#pragma once
#include "lora/mma/epilogue.cuh"

// Previous values of the warp's part of a tile, all in flight at once.
struct Before {
    uint4_t v[BLOCKS_M][2];

    __device__ __forceinline__ Before(const Rows& y, uint32_t tile) {
        static_assert(BLOCKS_N == 4, "a warp has 32 columns");
        const TileIndex at = rasterize<RASTER_BAND>(tile, (y.rows + TILE_M - 1) / TILE_M, (y.columns + TILE_N - 1) / TILE_N);
        const uint32_t warp = threadIdx.x / WARP;
        const uint32_t i0 = at.m * TILE_M + warp % (TILE_M / WARP_M) * WARP_M;
        const uint32_t j0 = at.n * TILE_N + warp / (TILE_M / WARP_M) * WARP_N;
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const Place place(i0, j0, m, half, 0);
                v[m][half] = {};
                if (y.contains(place.i, place.j)) v[m][half] = y.at(place.i, place.j);
            }
    }
};

// Stores y = before + accumulators, rounded.
__device__ __forceinline__ void add_rows(const Accumulators& acc, const Before& before, const Rows& y) {
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const Place place(acc.i0, acc.j0, m, half, 0);
            uint32_t out[4];
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) out[e] = before.v[m][half].v[e];
            transpose4(out);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const float (&v)[4] = acc.v[m][e];
                out[e] = pack_bf16x2(unpack_bf16x2(out[e], 0) + v[half * 2], unpack_bf16x2(out[e], 1) + v[half * 2 + 1]);
            }
            transpose4(out);
            if (y.contains(place.i, place.j)) y.at(place.i, place.j) = {{out[0], out[1], out[2], out[3]}};
        }
}
