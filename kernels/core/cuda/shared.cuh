// Plain accesses of shared memory by its address, as tensor-core instructions take it: 4, 8 and 16 bytes.
#pragma once
#include "device.cuh"

struct alignas(16) uint4_t {
    uint32_t v[4];
};

__device__ __forceinline__ void store_shared(uint32_t shared, uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t shared, float first, float second) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared), "f"(first), "f"(second) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t shared, uint4_t value) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(value.v[0]), "r"(value.v[1]),
                 "r"(value.v[2]), "r"(value.v[3])
                 : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t shared, const float (&value)[4]) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(value[0]), "f"(value[1]), "f"(value[2]),
                 "f"(value[3])
                 : "memory");
}

__device__ __forceinline__ uint32_t load_shared_word(uint32_t shared) {
    uint32_t value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(shared) : "memory");
    return value;
}
__device__ __forceinline__ void load_shared(float& first, float& second, uint32_t shared) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "r"(shared) : "memory");
}
__device__ __forceinline__ uint4_t load_shared(uint32_t shared) {
    uint4_t value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.v[0]), "=r"(value.v[1]), "=r"(value.v[2]), "=r"(value.v[3])
                 : "r"(shared)
                 : "memory");
    return value;
}
__device__ __forceinline__ void load_shared(float (&value)[4], uint32_t shared) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
                 : "r"(shared)
                 : "memory");
}
