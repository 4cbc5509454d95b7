// AdamW for every parameter of the model in one launch: clip, moments, decay, update, bf16 copy. Matrices lie before
// vectors in the flat buffers, so one index decides decay; no table of tensors. A step whose norm is not finite leaves
// everything untouched.
// Bound: memory, 30 bytes per element (28 in fp32), in 16-byte vectors; 8 less with moments in bf16.
// Sources: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019; lowbias32 of Wellons, "Prospecting for
// Hash Functions", 2018, for the random bits by which moments are rounded.
#include "adamw.h"
#include "vector.cuh"

struct Element {
    float w, m, v;
};

// Constants of a step, equal for every element.
struct Step {
    float clip_scale, lr, correction1, correction2;
#ifdef KEY_MOMENTS
    uint32_t random; // of its number
#endif
};

#ifdef KEY_MOMENTS
typedef KEY_MOMENTS Moment;

__device__ __forceinline__ uint32_t mixed(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// Step and element decide the bits: of its first moment the lower 16, of its second the others.
__device__ __forceinline__ uint32_t random_of(const Step& step, uint64_t element) {
    return mixed(uint32_t(element) ^ mixed(uint32_t(element >> 32) ^ step.random));
}

// Rounds up as often as the lower half is a part of what a bf16 counts; finite values stay finite.
__device__ __forceinline__ bf16 rounded(float value, uint32_t random) {
    const uint32_t infinity = 0x7f800000u, magnitude = bits_of(value) & 0x7fffffffu;
    uint32_t result = min(magnitude + random, infinity - 1);
    // A NaN whose payload is in the lower half alone would become infinite.
    if (magnitude >= infinity) result = magnitude > infinity ? magnitude | 0x400000u : infinity;
    return {uint16_t((bits_of(value) & 0x80000000u | result) >> 16)};
}

template <uint32_t width> __device__ __forceinline__ vector<float, width> load_moments(address of, uint64_t i) {
    if constexpr (width == 4) {
        const float4_t all = load4((const Moment*)of + i);
        return {{all.v[0], all.v[1], all.v[2], all.v[3]}};
    } else {
        return {to_float(((const Moment*)of)[i])};
    }
}

// `half` says which bits of an element's number are those of the moment.
template <uint32_t width>
__device__ __forceinline__ void store_moments(const adamw_params& p, const Step& step, address to, uint64_t i,
                                              const float (&values)[width], uint32_t half) {
    struct alignas(width * sizeof(Moment)) {
        Moment v[width];
    } all;
#pragma unroll
    for (uint32_t j = 0; j < width; j++)
        all.v[j] = rounded(values[j], random_of(step, p.first + i + j) >> 16 * half & 0xffffu);
    *(decltype(all)*)((Moment*)to + i) = all;
}
#else
template <uint32_t width> __device__ __forceinline__ vector<float, width> load_moments(address of, uint64_t i) {
    return load_vector<width>((const float*)of + i, 0);
}

template <uint32_t width>
__device__ __forceinline__ void store_moments(const adamw_params&, const Step&, address to, uint64_t i,
                                              const float (&values)[width], uint32_t) {
    store_vector((float*)to + i, 0, values);
}
#endif

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
    const vector<float, width> m = load_moments<width>(p.m, i);
    const vector<float, width> v = load_moments<width>(p.v, i);
    float new_w[width], new_m[width], new_v[width];
#pragma unroll
    for (uint32_t j = 0; j < width; j++) {
        const Element e = adamw(p, step, i + j, g[j], {w[j], m[j], v[j]});
        new_w[j] = e.w, new_m[j] = e.m, new_v[j] = e.v;
    }
    store_vector((float*)p.master + i, 0, new_w);
    store_moments<width>(p, step, p.m, i, new_m, 0);
    store_moments<width>(p, step, p.v, i, new_v, 1);
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
    Step step = {metrics.clip_scale, scalars.lr, 1.0f / scalars.bias_correction1, 1.0f / scalars.bias_correction2};
#ifdef KEY_MOMENTS
    step.random = mixed(scalars.step);
#endif
    // Each thread has one vector: more CTAs than fit at once are faster than a loop.
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    const uint64_t thread = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x;
    for (uint64_t n = thread; n < p.n / 4; n += stride) update<4>(p, step, n);
    for (uint64_t n = p.n / 4 * 4 + thread; n < p.n; n += stride) update<1>(p, step, n);
}
