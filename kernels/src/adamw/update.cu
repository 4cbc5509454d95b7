// AdamW for every parameter of the model in one launch: clip, moments, decay, update, bf16 copy.
// Matrices lie before vectors in the flat buffers, so one index decides what decays; no table of tensors.
// Memory bound: 28 bytes an element, in vectors of four; a non-finite step leaves everything untouched.
#include "device.cuh"
#include "adamw.h"

struct Element {
    float w, m, v;
};

__device__ __forceinline__ Element adamw(const adamw_params& p, const update_scalars& u, float clip_scale, uint64_t i,
                                         float grad, Element e) {
    const float g = clip_scale * grad;
    e.m = p.beta1 * e.m + (1.0f - p.beta1) * g;
    e.v = p.beta2 * e.v + (1.0f - p.beta2) * g * g;
    const float denominator = sqrtf(e.v / u.bias_correction2) + p.eps;
    const float decay = i < p.decayed ? p.weight_decay : 0.0f;
    e.w -= u.lr * (decay * e.w + e.m / u.bias_correction1 / denominator);
    return e;
}

KERNEL(adamw_params) {
    const step_metrics metrics = *(const step_metrics*)p.metrics;
    if (metrics.skipped) return;
    const update_scalars update = *(const update_scalars*)p.update;
    const float* grad = (const float*)p.grad;
    float *master = (float*)p.master, *m = (float*)p.m, *v = (float*)p.v;
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    const uint64_t thread = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x;
    for (uint64_t n = thread; n < p.n / 4; n += stride) {
        const uint64_t i = 4 * n;
        const float4_t g = load4(grad + i);
        float4_t w4 = load4(master + i), m4 = load4(m + i), v4 = load4(v + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const Element e = adamw(p, update, metrics.clip_scale, i + j, g.v[j], {w4.v[j], m4.v[j], v4.v[j]});
            w4.v[j] = e.w, m4.v[j] = e.m, v4.v[j] = e.v;
        }
        store4(master + i, w4);
        store4(m + i, m4);
        store4(v + i, v4);
        if constexpr (sizeof(KEY_W) == sizeof(bf16)) store4((bf16*)p.weights + i, w4);
    }
    for (uint64_t i = p.n / 4 * 4 + thread; i < p.n; i += stride) {
        const Element e = adamw(p, update, metrics.clip_scale, i, grad[i], {master[i], m[i], v[i]});
        master[i] = e.w, m[i] = e.m, v[i] = e.v;
        if constexpr (sizeof(KEY_W) == sizeof(bf16)) ((bf16*)p.weights)[i] = from_float<bf16>(e.w);
    }
}
