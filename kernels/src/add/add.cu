// Adds a float buffer to another, in place: one node of the tree that sums the gradients of replicas. A grid-stride
// loop over vectors of four elements.
// Bound: memory, 12 bytes per element. Source: none needed.
#include "device.cuh"
#include "add.h"

KERNEL(add_params) {
    const float* x = (const float*)p.x;
    float* y = (float*)p.y;
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    const uint64_t thread = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x;
    for (uint64_t i = thread; i < p.n / 4; i += stride) {
        const float4_t a = load4(x + 4 * i), b = load4(y + 4 * i);
        store4(y + 4 * i, float4_t{a.v[0] + b.v[0], a.v[1] + b.v[1], a.v[2] + b.v[2], a.v[3] + b.v[3]});
    }
    for (uint64_t i = p.n / 4 * 4 + thread; i < p.n; i += stride) y[i] = x[i] + y[i];
}
