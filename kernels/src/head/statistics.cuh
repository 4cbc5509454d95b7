// Online softmax statistics of a row of logits: the largest logit and sums of exponentials below it.
// Each thread walks its share of the row once, rescaling when its maximum moves; the block then meets.
// The order of every addition depends on the row's length alone.
#pragma once
#include "device.cuh"
#include "head.h"

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
