// Softcap forward: y = cap * tanh(x / cap).
// A grid-stride loop over vectors of four elements.
// Bound: memory. Source: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024.
#include "device.cuh"
#include "softcap.h"

__device__ __forceinline__ float softcap(float x, float cap) { return cap * tanhf(x / cap); }

KERNEL(softcap_fwd_params) {
    const KEY_X* x = (const KEY_X*)p.x;
    KEY_X* y = (KEY_X*)p.y;
    const uint64_t n = uint64_t(p.tokens) * p.n;
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    const uint64_t thread = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x;
    for (uint64_t i = thread; i < n / 4; i += stride) {
        float4_t v = load4(x + 4 * i);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) v.v[j] = softcap(v.v[j], p.cap);
        store4(y + 4 * i, v);
    }
    for (uint64_t i = n / 4 * 4 + thread; i < n; i += stride) y[i] = from_float<KEY_X>(softcap(to_float(x[i]), p.cap));
}
