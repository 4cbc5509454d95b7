// Which vectors of which row a thread takes: the same number of neighbouring blocks for each token.
// As many blocks as give each thread one vector of 16 bytes: many loads in flight and no loop to wait for.
// Rows that are not aligned are walked by single elements, each thread several.
#pragma once
#include "swiglu.h"
#include "vector.cuh"

struct Segment {
    uint32_t token, first, stride;
};

__device__ __forceinline__ Segment segment_of(uint32_t tokens) {
    const uint32_t segments = gridDim.x / tokens;
    const uint32_t token = blockIdx.x / segments, segment = blockIdx.x % segments;
    return {token, segment * VARIANT_THREADS + threadIdx.x, segments * VARIANT_THREADS};
}
