// Everything a kernel needs from the machine: types, loads and stores, warp and block reductions.
// The one place where intrinsics are named, so that the same kernels can be compiled for another machine.
// No toolkit header is included: a kernel depends on these sources and the compiler alone.
#pragma once
#include "types.h"

typedef unsigned short uint16_t;
typedef unsigned char uint8_t;

// ---- bfloat16: the upper half of a float ------------------------------------------------------------

struct bf16 {
    uint16_t bits;
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(bf16 value) { return __uint_as_float(uint32_t(value.bits) << 16); }

template <typename T> __device__ __forceinline__ T from_float(float value);
template <> __device__ __forceinline__ float from_float<float>(float value) { return value; }
// Round to nearest even.
template <> __device__ __forceinline__ bf16 from_float<bf16>(float value) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

// Two floats rounded to bf16, the first in the lower half.
__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

// What a buffer of type T would hold: the roundings inside a kernel that its host reference makes too.
template <typename T> __device__ __forceinline__ float round_to(float value) { return to_float(from_float<T>(value)); }

// 1 / value within one ulp, without the branch and call of a division. Not for subnormal values.
__device__ __forceinline__ float reciprocal(float value) {
    float result;
    asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

// A product that is rounded by itself: the compiler may not fuse it into a sum. `a * b - c * d` with equal factors is
// 0 only so; fused, it is the rounding error of one product.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }

// ---- vectors of four: one load or store of 8 or 16 bytes ------------------------------------------------

struct alignas(16) float4_t {
    float v[4];
};
struct alignas(8) bf16x4_t {
    bf16 v[4];
};

__device__ __forceinline__ float4_t load4(const float* p) { return *reinterpret_cast<const float4_t*>(p); }
__device__ __forceinline__ float4_t load4(const bf16* p) {
    bf16x4_t packed = *reinterpret_cast<const bf16x4_t*>(p);
    float4_t out;
#pragma unroll
    for (int i = 0; i < 4; i++) out.v[i] = to_float(packed.v[i]);
    return out;
}
__device__ __forceinline__ void store4(float* p, float4_t value) { *reinterpret_cast<float4_t*>(p) = value; }
__device__ __forceinline__ void store4(bf16* p, float4_t value) {
    bf16x4_t packed;
#pragma unroll
    for (int i = 0; i < 4; i++) packed.v[i] = from_float<bf16>(value.v[i]);
    *reinterpret_cast<bf16x4_t*>(p) = packed;
}

// ---- warps and blocks ----------------------------------------------------------------------------------

// Enumerators: a constant would be an object with internal linkage, whose symbol no bundle takes.
enum : uint32_t { WARP = 32 };
#define NEGATIVE_INFINITY __uint_as_float(0xff800000u)

__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ float shuffle_xor(float value, uint32_t lanes) {
    return __shfl_xor_sync(0xffffffffu, value, lanes);
}
__device__ __forceinline__ uint32_t shuffle_xor(uint32_t value, uint32_t lanes) {
    return __shfl_xor_sync(0xffffffffu, value, lanes);
}

// The first lane's value, in a form the compiler knows to be the same in all lanes.
__device__ __forceinline__ uint32_t broadcast(uint32_t value) { return __shfl_sync(0xffffffffu, value, 0); }
// Whether it holds in any lane.
__device__ __forceinline__ bool any_lane(bool value) { return __any_sync(0xffffffffu, value); }

// Sum and maximum over the `width` neighbouring lanes of an aligned group; every lane gets the result.
// Butterflies: the order of the additions is fixed.
template <uint32_t width = WARP> __device__ __forceinline__ float group_sum(float value) {
#pragma unroll
    for (uint32_t lanes = width / 2; lanes > 0; lanes /= 2) value += shuffle_xor(value, lanes);
    return value;
}
template <uint32_t width = WARP> __device__ __forceinline__ float group_max(float value) {
#pragma unroll
    for (uint32_t lanes = width / 2; lanes > 0; lanes /= 2) value = fmaxf(value, shuffle_xor(value, lanes));
    return value;
}

// Sum over a block of `threads`; every thread gets it. `scratch` holds one float a warp and may be used
// again after the next sync_block.
template <uint32_t threads> __device__ __forceinline__ float block_sum(float value, float* scratch) {
    constexpr uint32_t warps = threads / WARP;
    value = group_sum(value);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    sync_block();
    float sum = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < warps; w++) sum += scratch[w];
    return sum;
}

// Dynamic shared memory of a block.
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    type* name = reinterpret_cast<type*>(name##_bytes)

// A kernel takes its parameter block by value, in constant memory, and is named by its key and variant. A variant
// may say how many of its blocks a multiprocessor must be able to hold, which bounds the registers.
#ifndef VARIANT_BLOCKS
#define VARIANT_BLOCKS 1
#endif
#define KERNEL(params_t) extern "C" __global__ void __launch_bounds__(VARIANT_THREADS, VARIANT_BLOCKS) ENTRY(const __grid_constant__ params_t p)
