// CUDA C++ for a host compiler: the keywords, built-in variables and functions a kernel takes for granted.
// Included before every kernel. Standard headers stay out: kernels name their own `vector` and `exp2`.
#pragma once
#include <stdint.h>

#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// What these two say is read from the source: src/compile.rs.
#define __launch_bounds__(...)
#define __cluster_dims__(...)
// Each block starts with nothing in it, and blocks run one after the other.
#define __shared__ static

#define SIMT_INLINE static inline __attribute__((always_inline))

struct uint3 {
    uint32_t x, y, z;
};

extern "C" {
// Constant while a thread runs.
uint3 simt_thread() __attribute__((const));
uint3 simt_block() __attribute__((const));
uint3 simt_block_size() __attribute__((const));
uint3 simt_grid_size() __attribute__((const));
unsigned char* simt_dynamic_shared() __attribute__((const));

uint64_t __cvta_generic_to_shared(const void* p);
void __syncthreads();
void simt_sync_warp(uint32_t mask);
uint32_t simt_shuffle(uint32_t mask, uint32_t value, uint32_t lane);
uint32_t simt_shuffle_xor(uint32_t mask, uint32_t value, uint32_t lanes);
uint32_t simt_ballot(uint32_t mask, bool value);

float fabsf(float);
float fmaf(float, float, float);
float fmaxf(float, float);
float fminf(float, float);
float expf(float);
float log1pf(float);
float logf(float);
float log2f(float);
float sqrtf(float);
float tanhf(float);
}

#define threadIdx simt_thread()
#define blockIdx simt_block()
#define blockDim simt_block_size()
#define gridDim simt_grid_size()

SIMT_INLINE float __uint_as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
SIMT_INLINE uint32_t __float_as_uint(float value) { return __builtin_bit_cast(uint32_t, value); }
SIMT_INLINE float __fmul_rn(float a, float b) { return a * b; }
SIMT_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIMT_INLINE uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = uint64_t(high) << 32 | low;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; i++) result |= uint32_t(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}
SIMT_INLINE uint32_t __umulhi(uint32_t a, uint32_t b) { return uint64_t(a) * b >> 32; }
SIMT_INLINE uint64_t __umul64hi(uint64_t a, uint64_t b) { return (unsigned __int128)a * b >> 64; }
template <typename T> SIMT_INLINE T min(T a, T b) { return b < a ? b : a; }
template <typename T> SIMT_INLINE T max(T a, T b) { return a < b ? b : a; }
template <typename T> SIMT_INLINE T __ldg(const T* p) { return *p; }

SIMT_INLINE void __syncwarp(uint32_t mask = 0xffffffffu) { simt_sync_warp(mask); }
template <typename T> SIMT_INLINE T __shfl_xor_sync(uint32_t mask, T value, uint32_t lanes) {
    return __builtin_bit_cast(T, simt_shuffle_xor(mask, __builtin_bit_cast(uint32_t, value), lanes));
}
template <typename T> SIMT_INLINE T __shfl_sync(uint32_t mask, T value, uint32_t lane) {
    return __builtin_bit_cast(T, simt_shuffle(mask, __builtin_bit_cast(uint32_t, value), lane));
}
SIMT_INLINE uint32_t __ballot_sync(uint32_t mask, bool value) { return simt_ballot(mask, value); }
SIMT_INLINE uint32_t __popc(uint32_t bits) { return __builtin_popcount(bits); }
SIMT_INLINE bool __any_sync(uint32_t mask, bool value) { return simt_ballot(mask, value) != 0; }
SIMT_INLINE bool __all_sync(uint32_t mask, bool value) { return simt_ballot(mask, value) == mask; }

#include "ptx.h"

namespace simt {
// Where the parameter of an index lies in the block of a launch.
template <typename... Params> constexpr uint64_t place(uint64_t index) {
    const uint64_t bytes[] = {sizeof(Params)...}, aligns[] = {alignof(Params)...};
    uint64_t end = 0;
    for (uint64_t i = 0; i <= index; i++) {
        end = (end + aligns[i] - 1) / aligns[i] * aligns[i];
        if (i < index) end += bytes[i];
    }
    return end;
}
template <uint64_t... index> struct Indices {};
template <typename... Params, uint64_t... index>
__attribute__((no_sanitize("thread", "alignment"), always_inline)) inline void call(
    void (*kernel)(Params...), const char* params, Indices<index...>) {
    kernel(*reinterpret_cast<const Params*>(params + place<Params...>(index))...);
}
// Calls a kernel with its parameters, one block or several, whatever types those have.
template <typename... Params>
__attribute__((no_sanitize("thread", "alignment"))) void enter(void (*kernel)(Params...), const void* params) {
    call(kernel, static_cast<const char*>(params), Indices<__integer_pack(sizeof...(Params))...>());
}
} // namespace simt
