// Softmax of rows: y = exp(x - max) / sum(exp(x - max)). A CTA takes a row at a time and keeps it in shared memory: global
// memory is read once. Maximum and sum are found in one pass; their partial results are joined by shuffles, then over warps.
// Bound: memory. Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#include "device.cuh"
#include "softmax.h"

enum : uint32_t { WARPS = VARIANT_THREADS / WARP };

// The largest of some elements, and the sum of their exponentials relative to it.
struct Partial {
    float max, sum;
};

__device__ __forceinline__ Partial join(Partial a, Partial b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
}

KERNEL(softmax_params) {
    __shared__ float row[KEY_COLUMNS];
    __shared__ Partial partials[WARPS];
    for (uint32_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
        const KEY_X* x = (const KEY_X*)p.x + uint64_t(r) * KEY_COLUMNS;
        KEY_X* y = (KEY_X*)p.y + uint64_t(r) * KEY_COLUMNS;

        Partial own = {LOWEST, 0.0f};
        for (uint32_t i = threadIdx.x; i < KEY_COLUMNS; i += VARIANT_THREADS) {
            row[i] = to_float(x[i]);
            own = join(own, {row[i], 1.0f});
        }
#pragma unroll
        for (uint32_t lanes = WARP / 2; lanes > 0; lanes /= 2)
            own = join(own, {shuffle_xor(own.max, lanes), shuffle_xor(own.sum, lanes)});
        if (threadIdx.x % WARP == 0) partials[threadIdx.x / WARP] = own;
        sync_block(); // partials are there

        Partial all = partials[0];
#pragma unroll
        for (uint32_t warp = 1; warp < WARPS; warp++) all = join(all, partials[warp]);
        // Each thread the elements that it has put there.
        for (uint32_t i = threadIdx.x; i < KEY_COLUMNS; i += VARIANT_THREADS)
            y[i] = from_float<KEY_X>(expf(row[i] - all.max) / all.sum);
        sync_block(); // partials are reused
    }
}
