// Epilogue: accumulators to rows that are `stride` elements apart, in vectors of 16 bytes, as gemm/mma/epilogue.cuh stores them.
// Where they are added to what is there, that is in flight before the product begins: it is most of what a CTA reads.
#pragma once
#include "lora/mma/tile.cuh"

// A matrix of bf16 [rows, columns].
struct Rows {
    bf16* data;
    uint32_t stride, rows, columns;

    __device__ __forceinline__ bool contains(uint32_t i, uint32_t j) const { return i < rows && j < columns; }
    __device__ __forceinline__ uint4_t& at(uint32_t i, uint32_t j) const {
        return *reinterpret_cast<uint4_t*>(data + uint64_t(i) * stride + j);
    }
};

// A lane's vector: eight columns of a row, of 16 rows of accumulators one half and of their columns 32.
struct Place {
    uint32_t i, j;
    __device__ __forceinline__ Place(uint32_t i0, uint32_t j0, uint32_t m, uint32_t half, uint32_t four)
        : i(i0 + m * 16 + half * 8 + threadIdx.x % WARP / 4), j(j0 + four * 32 + threadIdx.x % 4 * 8) {}
};

// y = accumulators, rounded.
__device__ __forceinline__ void store_rows(const Accumulators& acc, const Rows& y) {
#pragma unroll
    for (uint32_t four = 0; four < BLOCKS_N / 4; four++)
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const Place place(acc.i0, acc.j0, m, half, four);
                uint32_t out[4];
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) {
                    const float (&v)[4] = acc.v[m][four * 4 + e];
                    out[e] = pack_bf16x2(v[half * 2], v[half * 2 + 1]);
                }
                transpose4(out);
                if (y.contains(place.i, place.j)) y.at(place.i, place.j) = {{out[0], out[1], out[2], out[3]}};
            }
}

// What is in the warp's part of a tile, all of it in flight at once.
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

// y = before + accumulators, rounded.
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

// Each element of the accumulators times a factor of its block of eight columns.
template <typename Scale> __device__ __forceinline__ void scale_columns(Accumulators& acc, Scale scale) {
#pragma unroll
    for (uint32_t n = 0; n < BLOCKS_N; n++) {
        const float factor = scale(acc.j0 + n * 8);
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) acc.v[m][n][e] *= factor;
    }
}
