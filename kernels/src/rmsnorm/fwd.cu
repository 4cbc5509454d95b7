// RMSNorm forward, the residual addition fused in: one pass over memory.
// One block a row; the row stays in registers between the sum of squares and the scaling.
// The sum with the residual branch is rounded before it is normalised: what is normalised is what is stored.
#include "device.cuh"
#include "rmsnorm.h"

KERNEL(rmsnorm_fwd_params) {
    constexpr uint32_t per_thread = (KEY_H + VARIANT_THREADS - 1) / VARIANT_THREADS;
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const uint64_t row = uint64_t(blockIdx.x) * KEY_H;
    const KEY_X* x = (const KEY_X*)p.x + row;
    const KEY_X* gamma = (const KEY_X*)p.gamma;
    KEY_X* y = (KEY_X*)p.y + row;

    float value[per_thread];
    float square = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < per_thread; j++) {
        const uint32_t i = j * VARIANT_THREADS + threadIdx.x;
        value[j] = 0.0f;
        if (i < KEY_H) {
            value[j] = to_float(x[i]);
#if KEY_RESIDUAL
            const KEY_X sum = from_float<KEY_X>(value[j] + to_float(((const KEY_X*)p.delta)[row + i]));
            ((KEY_X*)p.sum)[row + i] = sum;
            value[j] = to_float(sum);
#endif
        }
        square += value[j] * value[j];
    }
    const float rstd = 1.0f / sqrtf(block_sum<VARIANT_THREADS>(square, scratch) / KEY_H + p.eps);
    if (threadIdx.x == 0) ((float*)p.rstd)[blockIdx.x] = rstd;
#pragma unroll
    for (uint32_t j = 0; j < per_thread; j++) {
        const uint32_t i = j * VARIANT_THREADS + threadIdx.x;
        if (i < KEY_H) y[i] = from_float<KEY_X>(to_float(gamma[i]) * (value[j] * rstd));
    }
}
