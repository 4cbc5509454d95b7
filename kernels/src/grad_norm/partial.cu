// Sums of squares of fixed groups of the flat gradient: the first step of the global norm. One CTA per group; groups do
// not depend on the GPU, so the norm is bit-identical.
// Bound: memory. Reads every gradient once, eight 16-byte vectors in flight per thread. Source: see finish.cu.
#include "device.cuh"
#include "grad_norm.h"

KERNEL(grad_norm_partial_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const float* grad = (const float*)p.grad;
    const uint64_t first = uint64_t(blockIdx.x) * p.group;
    const uint64_t rest = p.n - first;
    const uint32_t count = rest < p.group ? uint32_t(rest) : p.group;
    float sum = 0.0f;
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < count / 4; i += VARIANT_THREADS) {
        const float4_t four = load4(grad + first + 4 * i);
#pragma unroll
        for (int j = 0; j < 4; j++) sum += four.v[j] * four.v[j];
    }
    for (uint32_t i = count / 4 * 4 + threadIdx.x; i < count; i += VARIANT_THREADS) {
        const float value = grad[first + i];
        sum += value * value;
    }
    sum = block_sum<VARIANT_THREADS>(sum, scratch);
    if (threadIdx.x == 0) ((float*)p.partial)[blockIdx.x] = sum;
}
