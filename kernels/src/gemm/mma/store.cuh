// Sums to global memory. mma leaves two neighbouring columns to a lane: each warp passes 32 rows at a time through shared
// memory, so that a lane gets four neighbouring columns and a warp reads and writes whole lines.
// Rows are whole vectors (n a multiple of 8), so four columns are inside the matrix or outside, never across its edge.
#pragma once
#include "gemm/mma/multiply.cuh"

enum : uint32_t {
    STRIP = 32,                    // rows that pass at one time
    QUADS = WARP_N / 4,            // of a row
    ROUNDS = STRIP * QUADS / WARP, // in which a warp reads a strip
    PITCH = WARP_N + 8,            // floats from row to row: the rows of an access share no bank
};

static_assert(THREADS / WARP * STRIP * PITCH * 4 <= STAGES * (TILE_M + TILE_N) * TILE_K * 2, "the slices' memory is enough");

// What is added to the sums before the one rounding: a row of bf16, a matrix of bf16, and one of f32 that other blocks may
// have written. Each may be absent.
struct Added {
    const bf16 *bias, *residual;
    const float* sum;
};

__device__ __forceinline__ void add(float4_t& to, const float4_t& other) {
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) to.v[e] += other.v[e];
}

// Where a warp's strips pass.
__device__ __forceinline__ float* own_strip() {
    extern __shared__ __align__(128) unsigned char slices[];
    return reinterpret_cast<float*>(slices) + threadIdx.x / WARP * (STRIP * PITCH);
}

// A strip of the warp's sums: row by row, for all its lanes to read.
__device__ __forceinline__ void put_strip(const Sums& sums, uint32_t strip, float* own) {
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t eight = 0; eight < STRIP / 8; eight++)
#pragma unroll
        for (uint32_t n = 0; n < BLOCKS_N; n++) {
            const float (&block)[4] = sums.v[strip * (STRIP / 16) + eight / 2][n];
            store2(own + (eight * 8 + lane / 4) * PITCH + n * 8 + lane % 4 * 2, block[eight % 2 * 2],
                   block[eight % 2 * 2 + 1]);
        }
    sync_warp();
}

// y = sums + what is added; y is rows x columns.
template <typename T>
__device__ __forceinline__ void store(const Sums& sums, T* y, uint32_t rows, uint32_t columns, const Added& added) {
    const uint32_t lane = threadIdx.x % WARP;
    float* own = own_strip();
    const uint32_t j = sums.j0 + lane % QUADS * 4;
    float4_t bias = {};
    if (added.bias && j < columns) bias = load4(added.bias + j);
    sync_block(); // all fragments have been read
#pragma unroll
    for (uint32_t strip = 0; strip < WARP_M / STRIP; strip++) {
        const uint32_t first = sums.i0 + strip * STRIP + lane / QUADS;
        const auto inside = [&](uint32_t round) { return first + round * (WARP / QUADS) < rows && j < columns; };
        const uint64_t at = uint64_t(first) * columns + j, stride = uint64_t(WARP / QUADS) * columns;
        float4_t before[ROUNDS] = {}; // all on their way at one time
        if (added.sum)
#pragma unroll
            for (uint32_t round = 0; round < ROUNDS; round++)
                if (inside(round)) before[round] = load4_fresh(added.sum + at + round * stride);
        if (added.residual)
#pragma unroll
            for (uint32_t round = 0; round < ROUNDS; round++)
                if (inside(round)) before[round] = load4(added.residual + at + round * stride);
        put_strip(sums, strip, own);
#pragma unroll
        for (uint32_t round = 0; round < ROUNDS; round++) {
            float4_t out = load4(own + (lane / QUADS + round * (WARP / QUADS)) * PITCH + lane % QUADS * 4);
            add(out, bias);
            add(out, before[round]);
            if (inside(round)) store4(y + at + round * stride, out);
        }
        sync_warp();
    }
}
