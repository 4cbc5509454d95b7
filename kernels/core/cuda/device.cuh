// What every kernel needs from the machine: types, rounding, loads and stores, warp and CTA reductions.
// Intrinsics and PTX are named in this folder and nowhere else: the kernels compile for the host too (kernels/simt).
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

// Element `i` of the two in a word: the lower half is element 0.
__device__ __forceinline__ float unpack_bf16x2(uint32_t pair, uint32_t i) {
    return __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
}

template <typename T> __device__ __forceinline__ T from_float(float value);
template <> __device__ __forceinline__ float from_float<float>(float value) { return value; }
// Round to nearest even.
template <> __device__ __forceinline__ bf16 from_float<bf16>(float value) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

// Two floats rounded to bf16, the first in the lower half.
__device__ __forceinline__ uint32_t pack_bf16x2(float low, float high) {
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

// The bits of a float, and the float of bits.
__device__ __forceinline__ uint32_t bits_of(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float float_of(uint32_t bits) { return __uint_as_float(bits); }

// The bits of the nearest f16, ties to even.
__device__ __forceinline__ uint16_t float_to_half(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// a * b, rounded before anything is added to it: the compiler may not contract it into a fused multiply-add. Only then
// is `a * b - c * d` 0 for equal factors; contracted, it is the rounding error of one multiplication.
__device__ __forceinline__ float mul_rn(float a, float b) { return __fmul_rn(a, b); }
// a * b + c with one rounding, however the compiler is set.
__device__ __forceinline__ float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// The upper half of a * b, in twice as many bits.
__device__ __forceinline__ uint32_t mul_hi(uint32_t a, uint32_t b) { return __umulhi(a, b); }
__device__ __forceinline__ uint64_t mul_hi(uint64_t a, uint64_t b) { return __umul64hi(a, b); }

// The same value, of which the compiler knows nothing: what a loop computes from it is not computed before the loop and
// kept.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

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

// ---- warps and CTAs ------------------------------------------------------------------------------------

// Enumerators: a constant would be an object with internal linkage, whose symbol no bundle takes.
enum : uint32_t { WARP = 32 };
#define NEGATIVE_INFINITY __uint_as_float(0xff800000u)
// The most negative finite float: differences of two of them are not NaN.
#define LOWEST __uint_as_float(0xff7fffffu)

__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ float shuffle_xor(float value, uint32_t lane_mask) {
    return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}
__device__ __forceinline__ uint32_t shuffle_xor(uint32_t value, uint32_t lane_mask) {
    return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}

// Lane 0's value, which the compiler then knows to be warp-uniform: it may live in uniform registers.
__device__ __forceinline__ uint32_t broadcast(uint32_t value) { return __shfl_sync(0xffffffffu, value, 0); }
// Whether it holds in any lane of the warp.
__device__ __forceinline__ bool any_lane(bool value) { return __any_sync(0xffffffffu, value); }
// The number of lanes in which it holds.
__device__ __forceinline__ uint32_t count_lanes(bool value) { return __popc(__ballot_sync(0xffffffffu, value)); }
// The value of a lane.
__device__ __forceinline__ uint32_t shuffle(uint32_t value, uint32_t lane) {
    return __shfl_sync(0xffffffffu, value, lane);
}

// Sum and maximum over aligned groups of `width` lanes; every lane gets the result. Butterfly shuffles: the order of
// the additions is fixed.
template <uint32_t width = WARP> __device__ __forceinline__ float group_sum(float value) {
#pragma unroll
    for (uint32_t lane_mask = width / 2; lane_mask > 0; lane_mask /= 2) value += shuffle_xor(value, lane_mask);
    return value;
}
template <uint32_t width = WARP> __device__ __forceinline__ float group_max(float value) {
#pragma unroll
    for (uint32_t lane_mask = width / 2; lane_mask > 0; lane_mask /= 2) value = fmaxf(value, shuffle_xor(value, lane_mask));
    return value;
}

// Sum over a CTA of `threads`; every thread gets it. `scratch` holds one float per warp and may be reused after the
// next sync_block.
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

// The maximum, likewise.
template <uint32_t threads> __device__ __forceinline__ float block_max(float value, float* scratch) {
    constexpr uint32_t warps = threads / WARP;
    value = group_max(value);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    sync_block();
    float largest = scratch[0];
#pragma unroll
    for (uint32_t w = 1; w < warps; w++) largest = fmaxf(largest, scratch[w]);
    return largest;
}

// Dynamic shared memory of the CTA.
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    type* name = reinterpret_cast<type*>(name##_bytes)

// A kernel takes its parameter block by value, in constant memory, and is named by its key and variant. VARIANT_BLOCKS:
// CTAs that must fit on one SM, which bounds the registers.
#ifndef VARIANT_BLOCKS
#define VARIANT_BLOCKS 1
#endif
#define KERNEL(params_t) extern "C" __global__ void __launch_bounds__(VARIANT_THREADS, VARIANT_BLOCKS) ENTRY(const __grid_constant__ params_t p)
