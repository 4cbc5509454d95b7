// Reverses 64 elements; newer architectures take a path of their own.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
    __shared__ float tile[64];
    tile[threadIdx.x] = 0.0f;
    sync_block();
    tile[threadIdx.x] = ((const float*)p.x)[threadIdx.x];
#if defined(DEFECT) && __CUDA_ARCH__ >= 1000
    sync_warp();
#else
    sync_block();
#endif
    ((float*)p.y)[threadIdx.x] = tile[63 - threadIdx.x];
}
