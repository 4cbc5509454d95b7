// Copies vectors of four.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
#ifdef DEFECT
    const uint32_t first = 1;
#else
    const uint32_t first = 0;
#endif
    for (uint32_t i = threadIdx.x; i < p.n / 4 - first; i += VARIANT_THREADS) {
        const float4_t value = load4((const float*)p.x + 4 * i + first);
        store4((float*)p.y + 4 * i, value);
    }
}
