// Online softmax statistics of a row of logits: the largest logit and sums of exponentials below it.
// Each thread walks its share of the row once, rescaling when its maximum moves; then the block meets, and the cluster.
// Exponentials are powers of two of logits scaled by log2(e) / T. The order of every addition depends on the row's
// length alone.
#pragma once
#include "head.h"
#include "vector.cuh"

// The shift of no logits: finite, so that no difference of two shifts is NaN.
#define LOWEST __uint_as_float(0xff7fffffu)

// The largest value over the block. `scratch` holds one float a warp.
__device__ __forceinline__ float block_max(float value, float* scratch) {
    value = group_max(value);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    sync_block();
    float largest = scratch[0];
#pragma unroll
    for (uint32_t w = 1; w < VARIANT_THREADS / WARP; w++) largest = fmaxf(largest, scratch[w]);
    sync_block(); // scratch may be used again
    return largest;
}

// The sum over the block.
__device__ __forceinline__ float total(float value, float* scratch) {
    const float sum = block_sum<VARIANT_THREADS>(value, scratch);
    sync_block();
    return sum;
}

// The largest element.
template <typename T, uint32_t n> __device__ __forceinline__ float largest(const vector<T, n>& values) {
    float result = values[0];
#pragma unroll
    for (uint32_t i = 1; i < n; i++) result = fmaxf(result, values[i]);
    return result;
}
// In pairs: a quarter of the instructions.
__device__ __forceinline__ float largest(const vector<bf16, 8>& values) {
    uint32_t pair = values.pairs[0];
#pragma unroll
    for (uint32_t i = 1; i < 4; i++) asm("max.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(values.pairs[i]));
    return fmaxf(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
