// Sums each thread's elements into y.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
    float* y = (float*)p.y + threadIdx.x;
#ifndef DEFECT
    *y = 0.0f;
#endif
    for (uint32_t i = threadIdx.x; i < p.n; i += VARIANT_THREADS) *y += ((const float*)p.x)[i];
    for (uint32_t i = threadIdx.x + VARIANT_THREADS; i < p.n; i += VARIANT_THREADS) ((float*)p.y)[i] = 0.0f;
}
