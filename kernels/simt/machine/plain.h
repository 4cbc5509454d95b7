// CUDA C++ that files have which are compiled as they are, besides what `cuda.h` has: vectors, and what stands for the
// host. Included before such a file alone, as kernels of our own name their own vectors.
#pragma once
#include "cuda.h"

#define __host__
#define __constant__ const
#define __noinline__ __attribute__((noinline))
// Of a file's kernels the one that is called is there, with the shared memory that it declares.
#undef __global__
#define __global__ inline __attribute__((noinline))

// `volatile char whole[0]` as src/translate.rs says: a vector is loaded and stored as one.
#define SIMT_VECTORS(type, name, bytes) \
    struct __align__(2 * bytes) name##2 { \
        type x, y; \
        volatile char whole[0]; \
    }; \
    struct __align__(bytes == 8 ? 16 : 4 * bytes) name##4 { \
        type x, y, z, w; \
        volatile char whole[0]; \
    }; \
    SIMT_INLINE name##2 make_##name##2(type x, type y) { return {x, y}; } \
    SIMT_INLINE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
SIMT_VECTORS(float, float, 4)
SIMT_VECTORS(double, double, 8)
SIMT_VECTORS(int, int, 4)
SIMT_VECTORS(unsigned int, uint, 4)
#undef SIMT_VECTORS

SIMT_INLINE uint32_t simt_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }
template <typename T> SIMT_INLINE T __shfl_down_sync(uint32_t mask, T value, uint32_t lanes) {
    return __shfl_sync(mask, value, simt_lane() + lanes < 32 ? simt_lane() + lanes : simt_lane());
}
template <typename T> SIMT_INLINE T __shfl_up_sync(uint32_t mask, T value, uint32_t lanes) {
    return __shfl_sync(mask, value, simt_lane() < lanes ? simt_lane() : simt_lane() - lanes);
}
