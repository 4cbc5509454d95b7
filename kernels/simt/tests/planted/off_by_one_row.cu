// Copies rows of 16; the last block is ragged.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
    const uint32_t rows = p.n / 16;
    const uint32_t row = blockIdx.x * 4 + threadIdx.x / 16, at = row * 16 + threadIdx.x % 16;
#ifdef DEFECT
    if (row <= rows) ((float*)p.y)[at] = ((const float*)p.x)[at];
#else
    if (row < rows) ((float*)p.y)[at] = ((const float*)p.x)[at];
#endif
}
