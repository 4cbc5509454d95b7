// Sequences that lie end to end, and the sums by which a warp finds its place among them.
#pragma once
#include "device.cuh"

struct alignas(8) Sequence {
    uint32_t first, length; // place of its first token, and tokens
};

// Returns the sum of a lane's value and of those of the lanes before it. All lanes of a warp call it.
__device__ __forceinline__ uint32_t inclusive_sum(uint32_t value) {
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const uint32_t other = shuffle(value, lane - distance);
        if (lane >= distance) value += other;
    }
    return value;
}
