// Cast between float dtypes, rounding to nearest even.
// A grid-stride loop over vectors of four elements.
// Bound: memory. Source: IEEE 754 (bf16 is the upper half of binary32).
#include "device.cuh"
#include "cast.h"

KERNEL(cast_params) {
    const KEY_FROM* x = (const KEY_FROM*)p.x;
    KEY_TO* y = (KEY_TO*)p.y;
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    const uint64_t thread = uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x;
    for (uint64_t i = thread; i < p.n / 4; i += stride) store4(y + 4 * i, load4(x + 4 * i));
    for (uint64_t i = p.n / 4 * 4 + thread; i < p.n; i += stride) y[i] = from_float<KEY_TO>(to_float(x[i]));
}
