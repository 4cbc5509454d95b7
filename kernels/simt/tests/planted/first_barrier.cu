// Reverses 64 elements through shared memory that nobody has written before.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
    __shared__ float tile[64];
    tile[threadIdx.x] = ((const float*)p.x)[threadIdx.x];
#ifndef DEFECT
    sync_block();
#endif
    ((float*)p.y)[threadIdx.x] = tile[63 - threadIdx.x];
}
