// The tiled product behind all three forms: C[i, j] = sum over r of A(i, r) * B(r, j), in f32 on CUDA cores.
// 256 threads hold a tile of C in registers while slices of A and B pass through shared memory; the next
// slice is fetched while this one is multiplied. Every sum runs over r in order: no split, no atomics.
#pragma once
#include "device.cuh"
#include "gemm.h"

// A matrix M(i, r) at data[i * row + r], or transposed at data[r * row + i].
struct Panel {
    const KEY_X* data;
    uint64_t row;
    uint32_t extent; // valid i
    uint32_t depth;  // valid r
};

// Enumerators for the reason device.cuh gives.
enum : uint32_t {
    TILE = VARIANT_TILE,
    SLICE = 16,
    SIDE = 16, // threads along each side of the tile
    PER_SIDE = TILE / SIDE, // sums of one thread along each side
    FETCH = TILE * SLICE / VARIANT_THREADS,
};

// Element `n` of a thread's share of a slice: consecutive threads read consecutive addresses.
template <bool transposed> __device__ __forceinline__ void share(uint32_t n, uint32_t& i, uint32_t& r) {
    const uint32_t index = n * VARIANT_THREADS + threadIdx.x;
    i = transposed ? index % TILE : index / SLICE;
    r = transposed ? index / TILE : index % SLICE;
}

// If `paired`, the upper half of the tile's rows are those that lie `extent` rows behind the lower half's.
template <bool transposed, bool paired = false>
__device__ __forceinline__ void fetch(const Panel& panel, uint32_t i0, uint32_t r0, float (&held)[FETCH]) {
#pragma unroll
    for (uint32_t n = 0; n < FETCH; n++) {
        uint32_t i, r;
        share<transposed>(n, i, r);
        const bool second = paired && i >= TILE / 2;
        i += second ? i0 - TILE / 2 : i0;
        r += r0;
        const bool inside = i < panel.extent && r < panel.depth;
        if (second) i += panel.extent;
        const uint64_t at = transposed ? r * panel.row + i : i * panel.row + r;
        held[n] = inside ? to_float(panel.data[at]) : 0.0f;
    }
}

template <bool transposed>
__device__ __forceinline__ void place(const float (&held)[FETCH], float (&slice)[SLICE][TILE + 1]) {
#pragma unroll
    for (uint32_t n = 0; n < FETCH; n++) {
        uint32_t i, r;
        share<transposed>(n, i, r);
        slice[r][i] = held[n];
    }
}

// Where a thread's sums are: those of its first row and column, and the others SIDE further each.
struct Corner {
    uint32_t row, column;
};

// Sums of the block's tile of C.
template <bool a_transposed, bool b_transposed, bool paired = false>
__device__ __forceinline__ Corner sum_tile(const Panel& a, const Panel& b, float (&sum)[PER_SIDE][PER_SIDE]) {
    __shared__ float a_slice[SLICE][TILE + 1], b_slice[SLICE][TILE + 1];
    const uint32_t i0 = blockIdx.y * TILE, j0 = blockIdx.x * (paired ? TILE / 2 : TILE);
    const uint32_t column = threadIdx.x % SIDE, row = threadIdx.x / SIDE;
    float a_held[FETCH], b_held[FETCH];
    fetch<a_transposed>(a, i0, 0, a_held);
    fetch<b_transposed, paired>(b, j0, 0, b_held);
    for (uint32_t r0 = 0; r0 < a.depth; r0 += SLICE) {
        sync_block();
        place<a_transposed>(a_held, a_slice);
        place<b_transposed>(b_held, b_slice);
        sync_block();
        fetch<a_transposed>(a, i0, r0 + SLICE, a_held);
        fetch<b_transposed, paired>(b, j0, r0 + SLICE, b_held);
#pragma unroll
        for (uint32_t r = 0; r < SLICE; r++) {
            float a_value[PER_SIDE], b_value[PER_SIDE];
#pragma unroll
            for (uint32_t s = 0; s < PER_SIDE; s++) {
                a_value[s] = a_slice[r][row + s * SIDE];
                b_value[s] = b_slice[r][column + s * SIDE];
            }
#pragma unroll
            for (uint32_t s = 0; s < PER_SIDE; s++)
#pragma unroll
                for (uint32_t t = 0; t < PER_SIDE; t++) sum[s][t] += a_value[s] * b_value[t];
        }
    }
    return {i0 + row, j0 + column};
}

// Calls store(i, j, sum) once for every element of C.
template <bool a_transposed, bool b_transposed, typename Store>
__device__ __forceinline__ void multiply(const Panel& a, const Panel& b, Store store) {
    float sum[PER_SIDE][PER_SIDE] = {};
    const Corner corner = sum_tile<a_transposed, b_transposed>(a, b, sum);
#pragma unroll
    for (uint32_t s = 0; s < PER_SIDE; s++)
#pragma unroll
        for (uint32_t t = 0; t < PER_SIDE; t++) {
            const uint32_t i = corner.row + s * SIDE, j = corner.column + t * SIDE;
            if (i < a.extent && j < b.extent) store(i, j, sum[s][t]);
        }
}

// Calls store(i, j, first, second) once for every pair of elements of C, the second b.extent columns behind the first.
template <typename Store> __device__ __forceinline__ void multiply_pairs(const Panel& a, const Panel& b, Store store) {
    float sum[PER_SIDE][PER_SIDE] = {};
    const Corner corner = sum_tile<false, false, true>(a, b, sum);
#pragma unroll
    for (uint32_t s = 0; s < PER_SIDE; s++)
#pragma unroll
        for (uint32_t t = 0; t < PER_SIDE / 2; t++) {
            const uint32_t i = corner.row + s * SIDE, j = corner.column + t * SIDE;
            if (i < a.extent && j < b.extent) store(i, j, sum[s][t], sum[s][t + PER_SIDE / 2]);
        }
}
