// int8 values of a row with one scale: the largest becomes 127. Every operation is rounded apart, so that the host has
// the same bits.
#pragma once
#include "device.cuh"

// The largest over the lanes of a warp; every lane gets it.
__device__ __forceinline__ uint32_t warp_max(uint32_t value) {
#pragma unroll
    for (uint32_t lane_mask = WARP / 2; lane_mask > 0; lane_mask /= 2) {
        const uint32_t other = shuffle_xor(value, lane_mask);
        value = value > other ? value : other;
    }
    return value;
}

// Eight values as one store.
struct alignas(8) int8x8_t {
    uint32_t fours[2];
};

// The values of a row are multiplied by `inverse` and rounded; as many times `scale` they are the row again.
struct RowScale {
    float inverse, scale;
};

// a + b and a - b.
__device__ __forceinline__ void butterfly(float& a, float& b) {
    const float sum = a + b;
    b = a - b;
    a = sum;
}
// The same of a and b times a power of two.
__device__ __forceinline__ void butterfly(float& a, float& b, float factor) {
    const float first = mul_rn(a, factor);
    a = fma_rn(b, factor, first);
    b = fma_rn(b, -factor, first);
}

// The bits of the largest magnitude: they compare as magnitudes do, and NaN is above all else. Values of one rotation
// block are all NaN or none but infinite, if one that went into them was not finite.
__device__ __forceinline__ uint32_t largest_magnitude(const float (&values)[8]) {
    float largest = fabsf(values[0]);
#pragma unroll
    for (uint32_t i = 1; i < 8; i++) largest = fmaxf(largest, fabsf(values[i]));
    return __float_as_uint(largest);
}

// Of a row that was multiplied by 1 / rotation and then rotated in such blocks; its largest magnitude has these bits.
// Below 2^-100 a row is zeros, with a scale of 0: nothing is divided by it. What is not finite is zeros with a scale of
// NaN.
template <uint32_t rotation> __device__ __forceinline__ RowScale row_scale(uint32_t largest) {
    constexpr uint32_t least = 0x0d800000, infinity = 0x7f800000;
    constexpr float root = rotation == 128 ? 11.31370849898476f : rotation == 64 ? 8.0f : rotation == 32 ? 5.656854249492381f : 4.0f;
    const float magnitude = __uint_as_float(largest);
    if (largest < least) return {0.0f, 0.0f};
    if (largest >= infinity) return {0.0f, __uint_as_float(0x7fc00000)};
    return {127.0f / magnitude, mul_rn(magnitude, root / 127.0f)};
}

// value * inverse rounded once, to the nearest integer, even: adding 1.5 * 2^23 leaves it in the lowest byte.
__device__ __forceinline__ uint32_t rounded(float value, const RowScale& row) {
    return __float_as_uint(fma_rn(value, row.inverse, 12582912.0f));
}

__device__ __forceinline__ int8x8_t quantize(const float (&values)[8], const RowScale& row) {
    int8x8_t result;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t low = __byte_perm(rounded(values[4 * i], row), rounded(values[4 * i + 1], row), 0x40);
        const uint32_t high = __byte_perm(rounded(values[4 * i + 2], row), rounded(values[4 * i + 3], row), 0x40);
        result.fours[i] = __byte_perm(low, high, 0x5410); // the lowest bytes
    }
    return result;
}
