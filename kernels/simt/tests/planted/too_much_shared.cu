// Reverses a block's elements through shared memory that is larger than any block may declare.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
    __shared__ float tile[12 * 1024 + 1];
    tile[threadIdx.x] = ((const float*)p.x)[threadIdx.x];
    sync_block();
    ((float*)p.y)[threadIdx.x] = tile[VARIANT_THREADS - 1 - threadIdx.x];
}
