// Assigns vectors of rows to threads: equally many neighboring CTAs per token, enough to give each thread one 16-byte
// vector: many loads in flight and no loop to wait for. Rows go from last to first: the rows that the previous GEMM has
// written last are still in L2, and those written last are what the next GEMM reads first. Unaligned rows are read
// element by element.
#pragma once
#include "gate.cuh"
#include "swiglu.h"

struct Segment {
    uint32_t token, first, stride;
};

__device__ __forceinline__ Segment segment_of(uint32_t tokens) {
    const uint32_t segments = gridDim.x / tokens;
    const uint32_t token = blockIdx.x / segments, segment = blockIdx.x % segments;
    return {tokens - 1 - token, segment * VARIANT_THREADS + threadIdx.x, segments * VARIANT_THREADS};
}
