// y += a x, in vectors of VARIANT_WIDTH elements. Bound: memory.
#include "saxpy.h"
#include "vector.cuh"

KERNEL(saxpy_params) {
    const KEY_X* x = (const KEY_X*)p.x;
    KEY_X* y = (KEY_X*)p.y;
    const uint32_t first = blockIdx.x * VARIANT_THREADS + threadIdx.x, stride = gridDim.x * VARIANT_THREADS;
    for (uint32_t i = first; i < p.n / VARIANT_WIDTH; i += stride) {
        const vector<KEY_X, VARIANT_WIDTH> xs = load_vector<VARIANT_WIDTH>(x, i), ys = load_vector<VARIANT_WIDTH>(y, i);
        float sums[VARIANT_WIDTH];
#pragma unroll
        for (uint32_t j = 0; j < VARIANT_WIDTH; j++) sums[j] = fmaf(p.a, xs[j], ys[j]);
        store_vector(y, i, sums);
    }
}
