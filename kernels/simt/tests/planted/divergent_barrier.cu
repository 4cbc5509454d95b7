// The upper half of the block shifts what the lower half loads.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
    __shared__ float tile[64];
    tile[threadIdx.x] = ((const float*)p.x)[threadIdx.x];
#ifdef DEFECT
    if (threadIdx.x < 32) return;
#endif
    sync_block();
    ((float*)p.y)[threadIdx.x] = tile[(threadIdx.x + 32) % 64];
}
