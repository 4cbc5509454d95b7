// The global gradient norm, its clip, and the flag that makes the optimizer skip a non-finite step.
// One CTA adds the partial sums in a fixed order.
// Bound: latency. It runs once per step over a few ten thousand floats. Source: Pascanu et al., "On the difficulty of
// training recurrent neural networks", 2013 (clipping by the global norm).
#include "device.cuh"
#include "grad_norm.h"

KERNEL(grad_norm_finish_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const float* partial = (const float*)p.partial;
    float sum = 0.0f;
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < p.count; i += VARIANT_THREADS) sum += partial[i];
    const float norm = sqrtf(block_sum<VARIANT_THREADS>(sum, scratch));
    if (threadIdx.x > 0) return;
    step_metrics* metrics = (step_metrics*)p.metrics;
    metrics->grad_norm = norm;
    metrics->clip_scale = p.clip > 0.0f ? fminf(1.0f, p.clip / (norm + 1e-6f)) : 1.0f;
    metrics->skipped = !(norm - norm == 0.0f); // inf - inf and NaN - NaN are NaN
    metrics->reserved = 0;
}
