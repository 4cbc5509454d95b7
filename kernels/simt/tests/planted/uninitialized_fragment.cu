// Multiplies a tile of bf16 by itself; the upper half of the tile has to be set.
#include "mma.cuh"
#include "planted.h"

KERNEL(planted_params) {
    __shared__ __align__(16) uint32_t tile[128];
    const uint32_t lane = threadIdx.x % WARP;
    tile[lane] = ((const uint32_t*)p.x)[lane], tile[lane + 32] = ((const uint32_t*)p.x)[lane + 32];
#ifndef DEFECT
    tile[lane + 64] = tile[lane + 96] = 0;
#endif
    sync_warp();
    uint32_t a[4];
    ldmatrix_x4(a, shared_address(tile + lane * 4));
    float d[4] = {};
    mma(d, a, a[0], a[1]);
    for (uint32_t e = 0; e < 4; e++) ((float*)p.y)[lane * 4 + e] = d[e];
}
