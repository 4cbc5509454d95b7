// CTAs store to the same elements one after the other: the last one's stay. What the first one stores for the last one,
// that hears of through the others.
#include "mma.cuh"
#include "planted.h"

KERNEL(planted_params) {
    uint32_t* semaphore = (uint32_t*)p.semaphore;
    float *y = (float*)p.y + threadIdx.x, *first = y + VARIANT_THREADS;
    uint32_t own = blockIdx.x;
#if DEFECT == 6
    own = gridDim.x - 1 - own;
#endif
    if (threadIdx.x == 0) {
#if DEFECT == 1
        while (*(volatile uint32_t*)semaphore != own) {}
#elif DEFECT == 5
        while (load_acquire(semaphore) != own + 1) {}
#else
        while (load_acquire(semaphore) != own) {}
#endif
    }
#if DEFECT != 2
    sync_block();
#endif
    *y = ((const float*)p.x)[own * VARIANT_THREADS + threadIdx.x];
#ifndef DEFECT
    if (own == 0) *first = *y;
    if (own + 1 == gridDim.x) *y += *first;
#endif
#if DEFECT != 3
    sync_block();
#endif
    const uint32_t next = own + 1 == gridDim.x ? 0 : own + 1;
#if DEFECT == 4
    if (threadIdx.x == 0) *(volatile uint32_t*)semaphore = next;
#else
    if (threadIdx.x == 0) store_release(semaphore, next);
#endif
}
