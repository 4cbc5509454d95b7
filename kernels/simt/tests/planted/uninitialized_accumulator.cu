// Multiplies a tile of bf16 by itself.
#include "mma.cuh"
#include "planted.h"

KERNEL(planted_params) {
    __shared__ __align__(16) uint32_t tile[128];
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) tile[lane + i * WARP] = ((const uint32_t*)p.x)[lane + i * WARP];
    sync_warp();
    uint32_t a[4];
    ldmatrix_x4(a, shared_address(tile + lane * 4));
#ifdef DEFECT
    float d[4];
#else
    float d[4] = {};
#endif
    mma(d, a, a[0], a[1]);
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) ((float*)p.y)[lane * 4 + e] = d[e];
}
