// Rotary embedding in place, half-split pairing: element i of a head turns with element i + d / 2.
// One block a token; threads walk the pairs of all its heads, query and key heads being adjacent.
// Cosines and sines come from a table the host made: no trigonometric function, no local memory.
#pragma once
#include "device.cuh"
#include "rope.h"

// `direction` is 1 forward, -1 backward.
__device__ __forceinline__ void rotate(const rope_params& p, float direction) {
    constexpr uint32_t half = KEY_D / 2;
    const uint32_t position = blockIdx.x % p.seq_len;
    const float* cos = (const float*)p.cos + uint64_t(position) * half;
    const float* sin = (const float*)p.sin + uint64_t(position) * half;
    KEY_X* row = (KEY_X*)p.x + uint64_t(blockIdx.x) * p.row_stride;
    for (uint32_t pair = threadIdx.x; pair < p.heads * half; pair += VARIANT_THREADS) {
        const uint32_t head = pair / half, i = pair % half;
        KEY_X* first = row + head * KEY_D + i;
        KEY_X* second = first + half;
        const float a = to_float(*first), b = to_float(*second), c = cos[i], s = direction * sin[i];
        *first = from_float<KEY_X>(a * c - b * s);
        *second = from_float<KEY_X>(b * c + a * s);
    }
}
