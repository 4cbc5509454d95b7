// Sets a buffer to one value, always or only in the first micro-batch of a step. The condition is read on the device,
// so that one replayed CUDA graph serves every micro-batch.
// Bound: memory, it only writes. Source: none needed.
#include "device.cuh"
#include "fill.h"

KERNEL(fill_params) {
#if KEY_FIRST
    if (((const micro_scalars*)p.micro)->accumulate) return;
#endif
    float* y = (float*)p.y;
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    const uint64_t thread = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x;
    const float4_t four = {p.value, p.value, p.value, p.value};
    for (uint64_t i = thread; i < p.n / 4; i += stride) store4(y + 4 * i, four);
    for (uint64_t i = p.n / 4 * 4 + thread; i < p.n; i += stride) y[i] = p.value;
}
