// Which vectors of which row a thread takes: the same number of neighbouring CTAs for each token.
// As many CTAs as give each thread one 16-byte vector: many loads in flight and no loop to wait for.
// Rows go from the last to the first: what the GEMM before has written last is still in L2, and what is written last is
// what the GEMM after it reads first. Rows that are not aligned are read element by element.
#pragma once
#include "swiglu.h"
#include "vector.cuh"

struct Segment {
    uint32_t token, first, stride;
};

__device__ __forceinline__ Segment segment_of(uint32_t tokens) {
    const uint32_t segments = gridDim.x / tokens;
    const uint32_t token = blockIdx.x / segments, segment = blockIdx.x % segments;
    return {tokens - 1 - token, segment * VARIANT_THREADS + threadIdx.x, segments * VARIANT_THREADS};
}
