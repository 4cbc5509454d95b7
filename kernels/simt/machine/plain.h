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

// Atomic operations of one word: threads come in any order, and see nothing else of each other.
extern "C" uint64_t simt_atomic_old(const void* word, uint64_t bytes, bool reads);
extern "C" void simt_atomic_new(void* word, uint64_t bytes, uint64_t bits);
template <typename T> struct simt_word {
    T value;
    char rest[8 - sizeof(T)];
};
template <typename T, typename F> SIMT_INLINE T simt_atomic(T* word, F next, bool reads = true) {
    const T old = __builtin_bit_cast(simt_word<T>, simt_atomic_old(word, sizeof(T), reads)).value;
    simt_atomic_new(word, sizeof(T), __builtin_bit_cast(uint64_t, simt_word<T>{next(old)}));
    return old;
}
#define SIMT_ATOMIC(type, name, next) \
    SIMT_INLINE type atomic##name(type* word, type value) { \
        return simt_atomic(word, [&](type old) -> type { return next; }); \
    }
#define SIMT_EXCHANGE(type) \
    SIMT_INLINE type atomicExch(type* word, type value) { \
        return simt_atomic(word, [&](type) -> type { return value; }, false); \
    }
#define SIMT_ATOMICS(type) \
    SIMT_EXCHANGE(type) \
    SIMT_ATOMIC(type, Add, old + value) \
    SIMT_ATOMIC(type, Min, old < value ? old : value) \
    SIMT_ATOMIC(type, Max, old < value ? value : old) \
    SIMT_ATOMIC(type, And, old & value) \
    SIMT_ATOMIC(type, Or, old | value) \
    SIMT_ATOMIC(type, Xor, old ^ value) \
    SIMT_INLINE type atomicCAS(type* word, type expected, type value) { \
        return simt_atomic(word, [&](type old) -> type { return old == expected ? value : old; }); \
    }
SIMT_ATOMICS(int)
SIMT_ATOMICS(unsigned int)
SIMT_ATOMICS(unsigned long long)
SIMT_ATOMIC(int, Sub, old - value)
SIMT_ATOMIC(unsigned int, Sub, old - value)
SIMT_ATOMIC(unsigned int, Inc, old >= value ? 0 : old + 1)
SIMT_ATOMIC(unsigned int, Dec, old == 0 || old > value ? value : old - 1)
SIMT_ATOMIC(float, Add, old + value)
SIMT_EXCHANGE(float)
SIMT_ATOMIC(double, Add, old + value)
#undef SIMT_ATOMICS
#undef SIMT_EXCHANGE
#undef SIMT_ATOMIC

SIMT_INLINE uint32_t simt_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }
template <typename T> SIMT_INLINE T __shfl_down_sync(uint32_t mask, T value, uint32_t lanes) {
    return __shfl_sync(mask, value, simt_lane() + lanes < 32 ? simt_lane() + lanes : simt_lane());
}
template <typename T> SIMT_INLINE T __shfl_up_sync(uint32_t mask, T value, uint32_t lanes) {
    return __shfl_sync(mask, value, simt_lane() < lanes ? simt_lane() : simt_lane() - lanes);
}
