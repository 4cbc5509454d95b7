// What the tensor-core attention kernels share, whichever instruction multiplies: exponentials to base 2 (scores are
// scaled by log2(e) beforehand), results as operands of the next product, accesses by shared address.
#pragma once
#include "mma.cuh"
#include "attention.h"

#define LOG2_E 1.44269504f

// 2^x; 2^-inf is 0.
__device__ __forceinline__ float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// Operand a, step `step`, of a result of products: columns 16 * step.. of it rounded to bf16.
template <uint32_t n>
__device__ __forceinline__ void pack_a(uint32_t (&a)[4], const float (&d)[n][4], uint32_t step) {
    a[0] = pack(d[2 * step][0], d[2 * step][1]);
    a[1] = pack(d[2 * step][2], d[2 * step][3]);
    a[2] = pack(d[2 * step + 1][0], d[2 * step + 1][1]);
    a[3] = pack(d[2 * step + 1][2], d[2 * step + 1][3]);
}

// Plain accesses by shared address: 4 bytes, 8 bytes, and 16 bytes that pass through registers.
struct alignas(16) vector_t {
    uint32_t v[4];
};
__device__ __forceinline__ void store_shared(uint32_t shared, uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}
__device__ __forceinline__ void load_shared(float& first, float& second, uint32_t shared) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "r"(shared) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t shared, const float (&value)[4]) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(value[0]), "f"(value[1]), "f"(value[2]),
                 "f"(value[3])
                 : "memory");
}
__device__ __forceinline__ void load_shared(float (&value)[4], uint32_t shared) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
                 : "r"(shared)
                 : "memory");
}
__device__ __forceinline__ vector_t load_vector(uint32_t shared) {
    vector_t value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.v[0]), "=r"(value.v[1]), "=r"(value.v[2]), "=r"(value.v[3])
                 : "r"(shared)
                 : "memory");
    return value;
}
__device__ __forceinline__ void store_vector(void* global, vector_t value) { *reinterpret_cast<vector_t*>(global) = value; }
// Starts a copy of 4 bytes from global to shared memory; with `valid` false it writes zeros and reads nothing.
__device__ __forceinline__ void copy_async_word(uint32_t shared, const void* global, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(valid ? 4 : 0)
                 : "memory");
}
