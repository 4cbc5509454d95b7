// Tiles of head vectors in shared memory, and the thread layout, of the CUDA-core attention kernels. A tile holds TILE
// positions of one head, rows padded by one float so that a column is conflict free. Four neighboring threads work on
// one row of a TILE x TILE block of scores, each on every fourth column.
#pragma once
#include "attention.h"
#include "attention/sequences.cuh"
#include "attention/window.cuh"

// Enumerators, for the reason in device.cuh.
enum : uint32_t {
    TILE = VARIANT_TILE,
    ROW_THREADS = VARIANT_THREADS / TILE, // threads that share a row
    PITCH = KEY_D + 1,
    SCORE_PITCH = TILE + 1,
    OWN_D = KEY_D / ROW_THREADS, // head elements one thread sums
    OWN_SCORES = TILE / ROW_THREADS,
};

// One head of a sequence in a packed [tokens, stride] buffer.
struct Head {
    uint64_t base; // element of position 0
    uint32_t stride;
};

__device__ __forceinline__ Head head_of(const SequenceTile& own, uint32_t columns, uint32_t column) {
    const uint32_t stride = columns * KEY_D;
    return {uint64_t(own.first) * stride + uint64_t(column) * KEY_D, stride};
}

// This thread's row of a tile and its lane in that row; the tile's first position, and the row's.
struct ThreadRow {
    uint32_t row, lane, first, position;
};
__device__ __forceinline__ ThreadRow thread_row(uint32_t tile) {
    const uint32_t row = threadIdx.x / ROW_THREADS, first = tile * TILE;
    return {row, threadIdx.x % ROW_THREADS, first, first + row};
}

// Copies TILE positions from `first` into shared memory; positions past the end become zeros.
__device__ __forceinline__ void load_tile(float* tile, const KEY_X* data, Head head, uint32_t first, uint32_t seq_len) {
    for (uint32_t n = threadIdx.x; n < TILE * KEY_D; n += VARIANT_THREADS) {
        const uint32_t row = n / KEY_D, i = n % KEY_D, position = first + row;
        tile[row * PITCH + i] =
            position < seq_len ? to_float(data[head.base + uint64_t(position) * head.stride + i]) : 0.0f;
    }
}

// Dot products of row `row` of a with this thread's columns of b.
__device__ __forceinline__ void dots(const float* a, const float* b, uint32_t row, uint32_t lane,
                                     float (&out)[OWN_SCORES]) {
#pragma unroll
    for (uint32_t j = 0; j < OWN_SCORES; j++) out[j] = 0.0f;
    for (uint32_t i = 0; i < KEY_D; i++) {
        const float value = a[row * PITCH + i];
#pragma unroll
        for (uint32_t j = 0; j < OWN_SCORES; j++) out[j] += value * b[(lane + j * ROW_THREADS) * PITCH + i];
    }
}

// sum += weights[row, :] * tile, this thread's elements of the row.
__device__ __forceinline__ void add_weighted(float (&sum)[OWN_D], const float* weights, const float* tile, uint32_t row,
                                             uint32_t lane) {
    for (uint32_t j = 0; j < TILE; j++) {
        const float weight = weights[row * SCORE_PITCH + j];
#pragma unroll
        for (uint32_t i = 0; i < OWN_D; i++) sum[i] += weight * tile[j * PITCH + lane + i * ROW_THREADS];
    }
}

// Writes this thread's elements of one position, scaled.
__device__ __forceinline__ void store_row(KEY_X* data, Head head, uint32_t position, uint32_t lane,
                                          const float (&sum)[OWN_D], float scale) {
    KEY_X* row = data + head.base + uint64_t(position) * head.stride;
#pragma unroll
    for (uint32_t i = 0; i < OWN_D; i++) row[lane + i * ROW_THREADS] = from_float<KEY_X>(sum[i] * scale);
}
