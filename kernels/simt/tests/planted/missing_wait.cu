// Copies 16 bytes a thread through shared memory without registers.
#include "mma.cuh"
#include "planted.h"

KERNEL(planted_params) {
    DYNAMIC_SHARED(float4_t, tile);
    cp_async(shared_address(tile + threadIdx.x), (const float4_t*)p.x + threadIdx.x);
    cp_async_commit();
#ifndef DEFECT
    cp_async_wait<0>();
#endif
    sync_block();
    const uint32_t other = VARIANT_THREADS - 1 - threadIdx.x;
    ((float4_t*)p.y)[other] = tile[other];
}
