// Scales elements, and adds a residual stream. A grid-stride loop over vectors of 16 bytes.
// Bound: memory. Source: none needed.
#include "vector.cuh"
#include "scale.h"

#define WIDTH WIDTH_OF(KEY_X)

__device__ __forceinline__ float scaled(float factor, float x, float residual) {
    return KEY_RESIDUAL ? fmaf(factor, x, residual) : factor * x;
}

KERNEL(scale_params) {
    const KEY_X* x = (const KEY_X*)p.x;
    const KEY_X* residual = (const KEY_X*)(KEY_RESIDUAL ? p.residual : p.x);
    KEY_X* y = (KEY_X*)p.y;
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    const uint64_t thread = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x;
    for (uint64_t i = thread; i < p.n / WIDTH; i += stride) {
        const vector<KEY_X, WIDTH> xs = load_vector<WIDTH>(x + WIDTH * i, 0),
                                   rs = load_vector<WIDTH>(residual + WIDTH * i, 0);
        float values[WIDTH];
#pragma unroll
        for (uint32_t j = 0; j < WIDTH; j++) values[j] = scaled(p.factor, xs[j], rs[j]);
        store_vector(y + WIDTH * i, 0, values);
    }
    for (uint64_t i = p.n / WIDTH * WIDTH + thread; i < p.n; i += stride) {
        y[i] = from_float<KEY_X>(scaled(p.factor, to_float(x[i]), to_float(residual[i])));
    }
}
