// Adds partial column sums into a gradient: the second step of bias and gamma gradients. A CTA takes 32 columns; each
// of its warps adds every DEPTH-th partial sum, then they reduce through shared memory in a fixed order. The first
// micro-batch of a step overwrites the gradient, so it needs no clearing. Bound: latency; it reads a few megabytes that
// are still in L2. Source: the gradient of y = x W^T + b with respect to b.
#include "device.cuh"
#include "column_sum.h"
#include "early.cuh"

KERNEL(column_sum_finish_params) {
    begin_early();
    constexpr uint32_t depth = VARIANT_THREADS / WARP;
    __shared__ float sums[depth][WARP];
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t column = blockIdx.x * WARP + lane;
    const float* partial = (const float*)p.partial;
    float sum = 0.0f;
    if (column < p.n)
#pragma unroll 8
        for (uint32_t row = warp; row < p.rows; row += depth) sum += partial[uint64_t(row) * p.n + column];
    sums[warp][lane] = sum;
    sync_block();
    if (warp > 0 || column >= p.n) return;
    float total = ((const micro_scalars*)p.micro)->accumulate ? ((const float*)p.grad)[column] : 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < depth; w++) total += sums[w][lane];
    ((float*)p.grad)[column] = total;
}
