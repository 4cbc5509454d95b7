// The tiled GEMM behind all forms on CUDA cores: C[i, j] = sum over r of A(i, r) * B(r, j), any shape, f32
// accumulators. 256 threads hold a tile of C in registers while k-tiles of A and B pass through shared memory; the next
// k-tile is fetched into registers while this one is multiplied. Every sum runs over r in order: no split, no atomics.
// Bound: FP32 arithmetic, close to shared memory: a thread loads 2 * PER_EDGE values for PER_EDGE^2 multiply-adds.
// Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
#pragma once
#include "device.cuh"
#include "gemm.h"

// A matrix M(i, r): K-major at data[i * row + r], or MN-major at data[r * row + i].
struct Matrix {
    const KEY_X* data;
    uint64_t row;
    uint32_t extent; // valid i
    uint32_t depth;  // valid r
};

// Enumerators, for the reason in device.cuh.
enum : uint32_t {
    TILE = VARIANT_TILE,
    TILE_K = 16,
    EDGE_THREADS = 16, // along each edge of the tile
    PER_EDGE = TILE / EDGE_THREADS, // accumulators of one thread along each edge
    PER_THREAD = TILE * TILE_K / VARIANT_THREADS, // elements of an operand's k-tile that a thread copies
};

// Sets i and r of element `n` of a thread's share of a k-tile: consecutive threads read consecutive addresses.
template <bool mn> __device__ __forceinline__ void element_of(uint32_t n, uint32_t& i, uint32_t& r) {
    const uint32_t index = n * VARIANT_THREADS + threadIdx.x;
    i = mn ? index % TILE : index / TILE_K;
    r = mn ? index / TILE : index % TILE_K;
}

// If `paired`, the upper half of the tile's rows are `extent` rows after the lower half's.
template <bool mn, bool paired = false>
__device__ __forceinline__ void
load_global(const Matrix& matrix, uint32_t i0, uint32_t r0, float (&fetched)[PER_THREAD]) {
#pragma unroll
    for (uint32_t n = 0; n < PER_THREAD; n++) {
        uint32_t i, r;
        element_of<mn>(n, i, r);
        const bool second = paired && i >= TILE / 2;
        i += second ? i0 - TILE / 2 : i0;
        r += r0;
        const bool inside = i < matrix.extent && r < matrix.depth;
        if (second) i += matrix.extent;
        const uint64_t at = mn ? r * matrix.row + i : i * matrix.row + r;
        fetched[n] = inside ? to_float(matrix.data[at]) : 0.0f;
    }
}

template <bool mn>
__device__ __forceinline__ void store_tile(const float (&fetched)[PER_THREAD], float (&tile)[TILE_K][TILE + 1]) {
#pragma unroll
    for (uint32_t n = 0; n < PER_THREAD; n++) {
        uint32_t i, r;
        element_of<mn>(n, i, r);
        tile[r][i] = fetched[n];
    }
}

// A thread's first accumulator in C; the others are EDGE_THREADS rows and columns apart.
struct Origin {
    uint32_t row, column;
};

// Computes the accumulators of the CTA's tile of C.
template <bool a_mn, bool b_mn, bool paired = false>
__device__ __forceinline__ Origin
mainloop(const Matrix& a, const Matrix& b, float (&accumulators)[PER_EDGE][PER_EDGE]) {
    __shared__ float a_tile[TILE_K][TILE + 1], b_tile[TILE_K][TILE + 1];
    const uint32_t i0 = blockIdx.y * TILE, j0 = blockIdx.x * (paired ? TILE / 2 : TILE);
    const uint32_t column = threadIdx.x % EDGE_THREADS, row = threadIdx.x / EDGE_THREADS;
    float a_fetched[PER_THREAD], b_fetched[PER_THREAD];
    load_global<a_mn>(a, i0, 0, a_fetched);
    load_global<b_mn, paired>(b, j0, 0, b_fetched);
    for (uint32_t r0 = 0; r0 < a.depth; r0 += TILE_K) {
        sync_block();
        store_tile<a_mn>(a_fetched, a_tile);
        store_tile<b_mn>(b_fetched, b_tile);
        sync_block();
        load_global<a_mn>(a, i0, r0 + TILE_K, a_fetched);
        load_global<b_mn, paired>(b, j0, r0 + TILE_K, b_fetched);
#pragma unroll
        for (uint32_t r = 0; r < TILE_K; r++) {
            float a_value[PER_EDGE], b_value[PER_EDGE];
#pragma unroll
            for (uint32_t s = 0; s < PER_EDGE; s++) {
                a_value[s] = a_tile[r][row + s * EDGE_THREADS];
                b_value[s] = b_tile[r][column + s * EDGE_THREADS];
            }
#pragma unroll
            for (uint32_t s = 0; s < PER_EDGE; s++)
#pragma unroll
                for (uint32_t t = 0; t < PER_EDGE; t++) accumulators[s][t] += a_value[s] * b_value[t];
        }
    }
    return {i0 + row, j0 + column};
}

// Calls epilogue(i, j, sum) once for every element of C.
template <bool a_mn, bool b_mn, typename Epilogue>
__device__ __forceinline__ void gemm(const Matrix& a, const Matrix& b, Epilogue epilogue) {
    float accumulators[PER_EDGE][PER_EDGE] = {};
    const Origin origin = mainloop<a_mn, b_mn>(a, b, accumulators);
#pragma unroll
    for (uint32_t s = 0; s < PER_EDGE; s++)
#pragma unroll
        for (uint32_t t = 0; t < PER_EDGE; t++) {
            const uint32_t i = origin.row + s * EDGE_THREADS, j = origin.column + t * EDGE_THREADS;
            if (i < a.extent && j < b.extent) epilogue(i, j, accumulators[s][t]);
        }
}

// Calls epilogue(i, j, first, second) for every pair of elements of C, the second b.extent columns after the first.
template <typename Epilogue>
__device__ __forceinline__ void gemm_paired(const Matrix& a, const Matrix& b, Epilogue epilogue) {
    float accumulators[PER_EDGE][PER_EDGE] = {};
    const Origin origin = mainloop<false, false, true>(a, b, accumulators);
#pragma unroll
    for (uint32_t s = 0; s < PER_EDGE; s++)
#pragma unroll
        for (uint32_t t = 0; t < PER_EDGE / 2; t++) {
            const uint32_t i = origin.row + s * EDGE_THREADS, j = origin.column + t * EDGE_THREADS;
            if (i < a.extent && j < b.extent) epilogue(i, j, accumulators[s][t], accumulators[s][t + PER_EDGE / 2]);
        }
}
