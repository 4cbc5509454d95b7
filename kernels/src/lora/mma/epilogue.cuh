// Epilogue: stores accumulators to rows `stride` elements apart, in 16-byte vectors, like gemm/mma/epilogue.cuh.
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

// A lane's vector: eight columns of a row, within one half of 16 rows of accumulators and 32 of their columns.
struct Place {
    uint32_t i, j;
    __device__ __forceinline__ Place(uint32_t i0, uint32_t j0, uint32_t m, uint32_t half, uint32_t four)
        : i(i0 + m * 16 + half * 8 + threadIdx.x % WARP / 4), j(j0 + four * 32 + threadIdx.x % 4 * 8) {}
};

// Stores y = accumulators, rounded.
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

// Multiplies each element of the accumulators by a factor of its block of eight columns.
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
