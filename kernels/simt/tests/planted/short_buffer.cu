// Neighboring differences through shared memory that holds one element more than the block has threads.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
#ifdef DEFECT
    __shared__ float tile[64];
#else
    __shared__ float tile[65];
#endif
    tile[threadIdx.x + 1] = ((const float*)p.x)[threadIdx.x];
    if (threadIdx.x == 0) tile[0] = 0.0f;
    sync_block();
    ((float*)p.y)[threadIdx.x] = tile[threadIdx.x + 1] - tile[threadIdx.x];
}
