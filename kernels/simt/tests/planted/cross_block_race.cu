// Each block writes its own elements of y.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
    const uint32_t own = blockIdx.x * VARIANT_THREADS + threadIdx.x;
    ((float*)p.y)[own] = ((const float*)p.x)[own];
#ifdef DEFECT
    if (own + 1 < p.n) ((float*)p.y)[own + 1] = ((const float*)p.x)[own + 1];
#endif
}
