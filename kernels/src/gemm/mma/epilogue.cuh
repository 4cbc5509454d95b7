// Epilogue: accumulators to global memory in stores of 16 bytes. mma gives a lane two neighboring columns; the four
// lanes of a row exchange theirs, so that each stores eight neighboring columns of bf16, or four of f32. Rows are whole
// vectors (n a multiple of 8), so a vector is inside the matrix or outside, never across its edge.
#pragma once
#include "shared.cuh"
#include "gemm/mma/mainloop.cuh"

// Transposes within groups of four lanes: element e of lane l becomes element l of lane e.
__device__ __forceinline__ void transpose4(uint32_t (&v)[4]) {
#pragma unroll
    for (uint32_t bit = 1; bit <= 2; bit *= 2) {
        const bool upper = threadIdx.x & bit;
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            if (!(e & bit)) {
                const uint32_t other = shuffle_xor(upper ? v[e] : v[e + bit], bit);
                v[e] = upper ? other : v[e];
                v[e + bit] = upper ? v[e + bit] : other;
            }
    }
}

// Stores y = accumulators (+ bias) (+ residual), rounded once; y and residual are rows x columns. Stores only the first
// `blocks` of the warp's blocks of eight columns.
template <bool has_bias, bool has_residual, uint32_t blocks = BLOCKS_N>
__device__ __forceinline__ void store(const Accumulators& acc, address y, address bias, address residual, uint32_t rows,
                                      uint32_t columns) {
    const uint32_t lane = threadIdx.x % WARP, member = lane % 4;
#pragma unroll
    for (uint32_t four = 0; four < blocks / 4; four++) {
        const uint32_t j0 = acc.j0 + four * 32, j = j0 + member * 8;
        uint32_t added[4] = {};
        if (has_bias && j < columns) {
            const uint4_t loaded = *reinterpret_cast<const uint4_t*>((const bf16*)bias + j);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) added[e] = loaded.v[e];
        }
        if (has_bias) transpose4(added);
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t i = acc.i0 + m * 16 + half * 8 + lane / 4;
                const uint64_t at = uint64_t(i) * columns + j;
                const bool inside = i < rows && j < columns;
                uint32_t out[4] = {};
                if (has_residual && inside) {
                    const uint4_t loaded = *reinterpret_cast<const uint4_t*>((const bf16*)residual + at);
#pragma unroll
                    for (uint32_t e = 0; e < 4; e++) out[e] = loaded.v[e];
                }
                if (has_residual) transpose4(out);
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) {
                    const float (&v)[4] = acc.v[m][four * 4 + e];
                    float first = v[half * 2], second = v[half * 2 + 1];
                    if (has_bias) first += unpack_bf16x2(added[e], 0), second += unpack_bf16x2(added[e], 1);
                    if (has_residual) first += unpack_bf16x2(out[e], 0), second += unpack_bf16x2(out[e], 1);
                    out[e] = pack_bf16x2(first, second);
                }
                transpose4(out);
                if (inside) *reinterpret_cast<uint4_t*>((bf16*)y + at) = {{out[0], out[1], out[2], out[3]}};
            }
    }
}

// Stores y = accumulators, or y += accumulators, in f32; other CTAs may have written y.
__device__ __forceinline__ void store(const Accumulators& acc, address y, bool add, uint32_t rows, uint32_t columns) {
    const uint32_t lane = threadIdx.x % WARP;
    const bool odd = lane % 2;
    // Even lanes take four columns of the first block of eight, odd ones of the second.
    const uint32_t j = acc.j0 + odd * 8 + lane % 4 / 2 * 4;
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++) {
        float4_t before[2][BLOCKS_N / 2] = {}; // all loads of these rows are in flight together
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
#pragma unroll
            for (uint32_t n = 0; n < BLOCKS_N; n += 2) {
                const uint32_t i = acc.i0 + m * 16 + half * 8 + lane / 4;
                if (add && i < rows && j + n * 8 < columns)
                    before[half][n / 2] = load4_cg((float*)y + uint64_t(i) * columns + j + n * 8);
            }
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
#pragma unroll
            for (uint32_t n = 0; n < BLOCKS_N; n += 2) {
                const float (&even_block)[4] = acc.v[m][n], (&odd_block)[4] = acc.v[m][n + 1];
                float4_t out = before[half][n / 2];
#pragma unroll
                for (uint32_t e = 0; e < 2; e++) {
                    const float own = odd ? odd_block[half * 2 + e] : even_block[half * 2 + e];
                    const float other = shuffle_xor(odd ? even_block[half * 2 + e] : odd_block[half * 2 + e], 1);
                    out.v[e] += odd ? other : own;
                    out.v[e + 2] += odd ? own : other;
                }
                const uint32_t i = acc.i0 + m * 16 + half * 8 + lane / 4;
                if (i < rows && j + n * 8 < columns) store4((float*)y + uint64_t(i) * columns + j + n * 8, out);
            }
    }
}
