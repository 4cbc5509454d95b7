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

// Cosines and sines of a vector of positions in a head, at a position of its sequence; `direction` is 1 forward, -1
// backward.
template <uint32_t width> struct Angles {
    float cos[width], sin[width];

    __device__ __forceinline__ Angles(address cosines, address sines, uint32_t position, uint32_t column,
                                      float direction) {
        const uint64_t at = uint64_t(position) * HALF + column * width;
        constexpr uint32_t four = width < 4 ? 1 : 4;
#pragma unroll
        for (uint32_t i = 0; i < width; i += four) {
            const vector<float, four> c = load_vector<four>((const float*)cosines + at + i, 0);
            const vector<float, four> s = load_vector<four>((const float*)sines + at + i, 0);
#pragma unroll
            for (uint32_t j = 0; j < four; j++) cos[i + j] = c[j], sin[i + j] = direction * s[j];
        }
    }
};

// Rotates a column of HEADS heads of a row from `first`, up to head `end`, and stores each at `place(head)`.
template <uint32_t width, typename Place>
__device__ __forceinline__ void rotate_heads(const KEY_X* row, uint32_t first, uint32_t end, uint32_t column,
                                             const Angles<width>& turn, const Place& place) {
    vector<KEY_X, width> a[HEADS], b[HEADS];
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++) {
        const KEY_X* head = row + (first + h) * KEY_D;
        if (first + h < end) {
            a[h] = load_vector<width>(head, column);
            b[h] = load_vector<width>(head + HALF, column);
        }
    }
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++) {
        if (first + h >= end) break;
        KEY_X* head = place(first + h);
        float rotated_a[width], rotated_b[width];
#pragma unroll
        for (uint32_t i = 0; i < width; i++) {
            rotated_a[i] = a[h][i] * turn.cos[i] - b[h][i] * turn.sin[i];
            rotated_b[i] = b[h][i] * turn.cos[i] + a[h][i] * turn.sin[i];
        }
        store_vector(head, column, rotated_a);
        store_vector(head + HALF, column, rotated_b);
    }
}

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
        const uint32_t position = ((const uint32_t*)p.position)[token];
        KEY_X* row = (KEY_X*)p.x + uint64_t(token) * p.row_stride;
        const Angles<width> turn(p.cos, p.sin, position, column, direction);
        rotate_heads<width>(row, first, p.heads, column, turn, [&](uint32_t head) { return row + head * KEY_D; });
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
