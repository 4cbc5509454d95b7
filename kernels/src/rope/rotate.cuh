// Rotary embedding in place, half-split pairing: element i of a head is rotated with element i + d / 2. A thread takes
// one vector of positions in the head and rotates it in HEADS neighboring heads, query and key heads being adjacent:
// one load of cosines and sines, which come from a table the host made, for all of them.
// Bound: memory. Reads and writes the rotated part of x once.
// Source: Su et al., "RoFormer", 2021; the pairing of Hugging Face's `rotate_half`.
#pragma once
#include "early.cuh"
#include "rope.h"
#include "vector.cuh"

enum : uint32_t { HALF = KEY_D / 2, HEADS = VARIANT_HEADS };

// `direction` is 1 forward, -1 backward.
template <uint32_t width> __device__ __forceinline__ void rotate(const rope_params& p, float direction) {
    constexpr uint32_t columns = HALF / width;
    const uint32_t groups = (p.heads + HEADS - 1) / HEADS; // groups of heads
    const uint32_t items = groups * columns;               // items per token
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    for (uint64_t item = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x; item < uint64_t(p.tokens) * items;
         item += stride) {
        const uint32_t token = item <= 0xffffffffu ? uint32_t(item) / items : uint32_t(item / items);
        const uint32_t within = uint32_t(item - uint64_t(token) * items);
        const uint32_t column = within % columns, first = within / columns * HEADS;
        const uint64_t position = uint64_t(((const uint32_t*)p.position)[token]) * HALF;
        KEY_X* row = (KEY_X*)p.x + uint64_t(token) * p.row_stride;

        float cos[width], sin[width];
#pragma unroll
        for (uint32_t i = 0; i < width; i += width < 4 ? 1 : 4) {
            constexpr uint32_t four = width < 4 ? 1 : 4;
            const vector<float, four> c = load_vector<four>((const float*)p.cos + position + column * width + i, 0);
            const vector<float, four> s = load_vector<four>((const float*)p.sin + position + column * width + i, 0);
#pragma unroll
            for (uint32_t j = 0; j < four; j++) cos[i + j] = c[j], sin[i + j] = direction * s[j];
        }
        vector<KEY_X, width> a[HEADS], b[HEADS];
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++) {
            const KEY_X* head = row + (first + h) * KEY_D;
            if (first + h < p.heads) {
                a[h] = load_vector<width>(head, column);
                b[h] = load_vector<width>(head + HALF, column);
            }
        }
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++) {
            KEY_X* head = row + (first + h) * KEY_D;
            if (first + h >= p.heads) break;
            float rotated_a[width], rotated_b[width];
#pragma unroll
            for (uint32_t i = 0; i < width; i++) {
                rotated_a[i] = a[h][i] * cos[i] - b[h][i] * sin[i];
                rotated_b[i] = b[h][i] * cos[i] + a[h][i] * sin[i];
            }
            store_vector(head, column, rotated_a);
            store_vector(head + HALF, column, rotated_b);
        }
    }
}

__device__ __forceinline__ void rotate(const rope_params& p, float direction) {
    begin_early();
    constexpr uint32_t width = HALF % WIDTH_OF(KEY_X) == 0 ? WIDTH_OF(KEY_X) : 1;
    if (p.row_stride % width == 0)
        rotate<width>(p, direction);
    else
        rotate<1>(p, direction);
}
