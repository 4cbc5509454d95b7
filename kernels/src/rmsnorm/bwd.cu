// RMSNorm backward: dx with the residual stream's gradient added, and partial sums of dgamma.
// One block walks `rows` rows, keeping its share of gamma and of dgamma in registers all the way, so the
// gamma gradient costs no second pass over the activations and no atomics.
#include "device.cuh"
#include "rmsnorm.h"

KERNEL(rmsnorm_bwd_params) {
    constexpr uint32_t per_thread = (KEY_H + VARIANT_THREADS - 1) / VARIANT_THREADS;
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const KEY_X* gamma = (const KEY_X*)p.gamma;
    float weight[per_thread], dgamma[per_thread];
#pragma unroll
    for (uint32_t j = 0; j < per_thread; j++) {
        const uint32_t i = j * VARIANT_THREADS + threadIdx.x;
        weight[j] = i < KEY_H ? to_float(gamma[i]) : 0.0f;
        dgamma[j] = 0.0f;
    }
    const uint32_t first = blockIdx.x * p.rows;
    const uint32_t end = min(first + p.rows, p.tokens);
    for (uint32_t t = first; t < end; t++) {
        const uint64_t row = uint64_t(t) * KEY_H;
        const KEY_X* dy = (const KEY_X*)p.dy + row;
        const KEY_X* x = (const KEY_X*)p.x + row;
        KEY_X* dx = (KEY_X*)p.dx + row;
        const float rstd = ((const float*)p.rstd)[t];
        float g[per_thread], n[per_thread];
        float dot = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < per_thread; j++) {
            const uint32_t i = j * VARIANT_THREADS + threadIdx.x;
            const float d = i < KEY_H ? to_float(dy[i]) : 0.0f;
            n[j] = i < KEY_H ? to_float(x[i]) * rstd : 0.0f;
            dgamma[j] += d * n[j];
            g[j] = weight[j] * d;
            dot += g[j] * n[j];
        }
        const float mean = block_sum<VARIANT_THREADS>(dot, scratch) / KEY_H;
#pragma unroll
        for (uint32_t j = 0; j < per_thread; j++) {
            const uint32_t i = j * VARIANT_THREADS + threadIdx.x;
            if (i >= KEY_H) continue;
            float d = rstd * (g[j] - n[j] * mean);
#if KEY_RESIDUAL
            d += to_float(((const KEY_X*)p.dresidual)[row + i]);
#endif
            dx[i] = from_float<KEY_X>(d);
        }
        sync_block(); // scratch is used again for the next row
    }
    float* partial = (float*)p.dgamma_partial + uint64_t(blockIdx.x) * KEY_H;
#pragma unroll
    for (uint32_t j = 0; j < per_thread; j++) {
        const uint32_t i = j * VARIANT_THREADS + threadIdx.x;
        if (i < KEY_H) partial[i] = dgamma[j];
    }
}
