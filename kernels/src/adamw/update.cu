// AdamW for every parameter of the model in one launch: clip, moments, decay, update, bf16 copy. Matrices lie before
// vectors in the flat buffers, so one index decides decay; no table of tensors. A step whose norm is not finite leaves
// everything untouched.
// Bound: memory, 30 bytes per element (28 in fp32), in 16-byte vectors.
// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
#include "adamw.h"
#include "vector.cuh"

struct Element {
    float w, m, v;
};

// Constants of a step, equal for every element.
struct Step {
    float clip_scale, lr, correction1, correction2;
};

__device__ __forceinline__ Element adamw(const adamw_params& p, const Step& step, uint64_t i, float grad, Element e) {
    const float g = step.clip_scale * grad;
    e.m = p.beta1 * e.m + (1.0f - p.beta1) * g;
    e.v = p.beta2 * e.v + (1.0f - p.beta2) * g * g;
    const float root = sqrt_ftz(e.v * step.correction2);
    const float decay = i < p.decayed ? p.weight_decay : 0.0f;
    e.w -= step.lr * (decay * e.w + e.m * step.correction1 * reciprocal_ftz(root + p.eps));
    return e;
}

template <uint32_t width> __device__ __forceinline__ void update(const adamw_params& p, const Step& step, uint64_t n) {
    const uint64_t i = n * width;
    const vector<float, width> g = load_vector<width>((const float*)p.grad + i, 0);
    const vector<float, width> w = load_vector<width>((const float*)p.master + i, 0);
    const vector<float, width> m = load_vector<width>((const float*)p.m + i, 0);
    const vector<float, width> v = load_vector<width>((const float*)p.v + i, 0);
    float new_w[width], new_m[width], new_v[width];
#pragma unroll
    for (uint32_t j = 0; j < width; j++) {
        const Element e = adamw(p, step, i + j, g[j], {w[j], m[j], v[j]});
        new_w[j] = e.w, new_m[j] = e.m, new_v[j] = e.v;
    }
    store_vector((float*)p.master + i, 0, new_w);
    store_vector((float*)p.m + i, 0, new_m);
    store_vector((float*)p.v + i, 0, new_v);
    if constexpr (sizeof(KEY_W) == sizeof(bf16)) {
        if constexpr (width == 4) {
            store4((bf16*)p.weights + i, {new_w[0], new_w[1], new_w[2], new_w[3]});
        } else {
            store_vector((bf16*)p.weights + i, 0, new_w);
        }
    }
}

KERNEL(adamw_params) {
    const step_metrics metrics = *(const step_metrics*)p.metrics;
    if (metrics.skipped) return;
    const update_scalars scalars = *(const update_scalars*)p.update;
    const Step step = {metrics.clip_scale, scalars.lr, 1.0f / scalars.bias_correction1, 1.0f / scalars.bias_correction2};
    // Each thread has one vector: more CTAs than fit at once are faster than a loop.
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    const uint64_t thread = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x;
    for (uint64_t n = thread; n < p.n / 4; n += stride) update<4>(p, step, n);
    for (uint64_t n = p.n / 4 * 4 + thread; n < p.n; n += stride) update<1>(p, step, n);
}
