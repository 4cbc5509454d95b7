// softcap/fwd.cu through shared memory, where barriers can be forgotten.
#include "device.cuh"
#include "softcap.h"

KERNEL(softcap_fwd_params) {
    __shared__ float tile[VARIANT_THREADS];
    const KEY_X* x = (const KEY_X*)p.x;
    KEY_X* y = (KEY_X*)p.y;
    const uint64_t n = uint64_t(p.tokens) * p.n;
    const uint32_t other = VARIANT_THREADS - 1 - threadIdx.x;
    const uint64_t stride = uint64_t(gridDim.x) * VARIANT_THREADS;
    for (uint64_t first = uint64_t(blockIdx.x) * VARIANT_THREADS; first < n; first += stride) {
        tile[threadIdx.x] = first + threadIdx.x < n ? to_float(x[first + threadIdx.x]) : 0.0f;
        sync_block(); // the tile is there
        const float value = p.cap * tanhf(tile[other] / p.cap);
        sync_block(); // the tile has been read
        if (first + other < n) y[first + other] = from_float<KEY_X>(value);
    }
}
