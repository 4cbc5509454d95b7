// Sums over each warp; the last element is odd.
#include "device.cuh"
#include "planted.h"

KERNEL(planted_params) {
#ifdef DEFECT
    if (threadIdx.x == 63) return;
#endif
    ((float*)p.y)[threadIdx.x] = group_sum(((const float*)p.x)[threadIdx.x]);
}
