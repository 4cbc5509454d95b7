// Scales of least squared error for the blocks of ggml, and the values that these then hold.
//
// Multiplications are rounded before anything is added, numbers are whole and small, and each sum is one thread's, in
// order: the bits are those of the host (kernels/src/fake_quant/scales.rs).
#pragma once
#include "blocks.cuh"
#include "fake_quant.h"

// The nearest whole number in [low, high], ties to even.
__device__ __forceinline__ float whole(float value, float low, float high) {
    // Above 2^23 floats are whole.
    return fminf(fmaxf(value, low), high) + 12582912.0f - 12582912.0f;
}
__device__ __forceinline__ float inverse_of(float value) { return value == 0.0f ? 0.0f : 1.0f / value; }
// A scale as a block stores it, never infinite.
__device__ __forceinline__ float stored_half(float value) {
    return half_to_float(float_to_half(fminf(fmaxf(value, -65504.0f), 65504.0f)));
}

// The value of the largest magnitude, the first of equal ones.
template <uint32_t n> __device__ __forceinline__ float extreme(const float (&x)[n]) {
    float result = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < n; i++) result = fabsf(x[i]) > fabsf(result) ? x[i] : result;
    return result;
}

// The scale of numbers from `low` to `-low - 1` with the least squared error.
template <int low, uint32_t n> __device__ __forceinline__ float symmetric_scale(const float (&x)[n]) {
    const float per_extreme = inverse_of(extreme(x));
    float best_xq = 0.0f, best_qq = 1.0f;
#pragma unroll 1
    for (int c = -SCALE_CANDIDATES; c <= SCALE_CANDIDATES; c++) {
        const float inverse = mul_rn(float(low) + 0.125f * float(c), per_extreme);
        float xq = 0.0f, qq = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < n; i++) {
            const float q = whole(mul_rn(x[i], inverse), low, -low - 1);
            xq += mul_rn(x[i], q);
            qq += q * q;
        }
        // The error is that of zeros less xq^2 / qq.
        if (mul_rn(mul_rn(xq, xq), best_qq) > mul_rn(mul_rn(best_xq, best_xq), qq)) best_xq = xq, best_qq = qq;
    }
    return best_xq / best_qq;
}

// Values at a scale.
template <int low, uint32_t n> __device__ __forceinline__ void round_at(float scale, float (&x)[n]) {
    const float inverse = inverse_of(scale);
#pragma unroll
    for (uint32_t i = 0; i < n; i++) x[i] = mul_rn(whole(mul_rn(x[i], inverse), low, -low - 1), scale);
}

struct Affine {
    float scale, min; // scale * q - min
};

// Scale and minimum of numbers from 0 to 15 with the least squared error.
template <uint32_t n> __device__ __forceinline__ Affine affine_scale(const float (&x)[n]) {
    float low = 0.0f, high = x[0], sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < n; i++) low = fminf(low, x[i]), high = fmaxf(high, x[i]), sum += x[i];
    const float range = high - low, per_range = inverse_of(range);
    Affine best = {range / 15.0f, -low};
    float best_gain = -1.0f;
#pragma unroll 1
    for (int c = -SCALE_CANDIDATES; c <= SCALE_CANDIDATES; c++) {
        const float inverse = mul_rn(15.0f + 0.125f * float(c), per_range);
        float q1 = 0.0f, q2 = 0.0f, xq = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < n; i++) {
            const float q = whole(mul_rn(x[i] - low, inverse), 0.0f, 15.0f);
            q1 += q, q2 += q * q, xq += mul_rn(x[i], q);
        }
        const float determinant = float(n) * q2 - q1 * q1;
        if (determinant <= 0.0f) continue;
        float scale = (mul_rn(float(n), xq) - mul_rn(sum, q1)) / determinant;
        float offset = (mul_rn(q2, sum) - mul_rn(q1, xq)) / determinant;
        if (offset > 0.0f) scale = xq / q2, offset = 0.0f;
        // The error is that of zeros less this.
        const float gain = mul_rn(scale, xq) + mul_rn(offset, sum);
        if (gain > best_gain) best = {scale, -offset}, best_gain = gain;
    }
    return best;
}

// The value of the largest magnitude of `lanes` neighbors, the first of equal ones.
template <uint32_t lanes> __device__ __forceinline__ float extreme_of_lanes(float value) {
    float each[lanes];
#pragma unroll
    for (uint32_t i = 0; i < lanes; i++)
        each[i] = float_of(shuffle(bits_of(value), threadIdx.x % WARP / lanes * lanes + i));
    return extreme(each);
}

// Values of a format: `GROUP` neighbors share a scale.
template <typename Block> struct Rounding;

template <> struct Rounding<Q8_0> {
    enum : uint32_t { GROUP = SCALED_ELEMS };
    // As ggml: the largest becomes 127, and halves are rounded away from zero.
    static __device__ __forceinline__ void round(float (&x)[GROUP]) {
        const float scale = fabsf(extreme(x)) / 127.0f, inverse = inverse_of(scale), stored = stored_half(scale);
#pragma unroll
        for (uint32_t i = 0; i < GROUP; i++) {
            const float scaled = mul_rn(x[i], inverse), magnitude = fabsf(scaled);
            const float nearest = whole(magnitude, 0.0f, 127.0f);
            const float q = magnitude - nearest == 0.5f ? nearest + 1.0f : nearest;
            x[i] = mul_rn(scaled < 0.0f ? 0.0f - q : q, stored);
        }
    }
};

template <> struct Rounding<Q4_0> {
    enum : uint32_t { GROUP = SCALED_ELEMS };
    static __device__ __forceinline__ void round(float (&x)[GROUP]) {
        round_at<-8>(stored_half(symmetric_scale<-8>(x)), x);
    }
};

template <> struct Rounding<Q5_0> {
    enum : uint32_t { GROUP = SCALED_ELEMS };
    static __device__ __forceinline__ void round(float (&x)[GROUP]) {
        round_at<-16>(stored_half(symmetric_scale<-16>(x)), x);
    }
};

// Scales and minimums of eight groups are multiples, in 6 bits, of the largest.
template <> struct Rounding<Q4_K> {
    enum : uint32_t { GROUP = SCALED_ELEMS, LANES = Q4_K::ELEMS / GROUP };
    static __device__ __forceinline__ float in_six_bits(float value) {
        const float positive = value > 0.0f ? value : 0.0f, largest = group_max<LANES>(positive);
        const float q = whole(mul_rn(positive, mul_rn(63.0f, inverse_of(largest))), 0.0f, 63.0f);
        return mul_rn(stored_half(largest / 63.0f), q);
    }
    static __device__ __forceinline__ void round(float (&x)[GROUP]) {
        const Affine fitted = affine_scale(x);
        const float scale = in_six_bits(fitted.scale), min = in_six_bits(fitted.min), inverse = inverse_of(scale);
#pragma unroll
        for (uint32_t i = 0; i < GROUP; i++)
            x[i] = mul_rn(scale, whole(mul_rn(x[i] + min, inverse), 0.0f, 15.0f)) - min;
    }
};

// Scales of sixteen groups are multiples, in 8 bits, of a 128th of the largest.
template <> struct Rounding<Q6_K> {
    enum : uint32_t { GROUP = SCALED_ELEMS_Q6_K, LANES = Q6_K::ELEMS / GROUP };
    static __device__ __forceinline__ void round(float (&x)[GROUP]) {
        const float fitted = symmetric_scale<-32>(x), largest = extreme_of_lanes<LANES>(fitted);
        const float q = whole(mul_rn(fitted, mul_rn(-128.0f, inverse_of(largest))), -128.0f, 127.0f);
        round_at<-32>(mul_rn(stored_half(largest / -128.0f), q), x);
    }
};
