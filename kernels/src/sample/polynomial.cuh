// Exponential and logarithm by polynomials, with the same bits on GPU and host: every operation is an IEEE one, fused
// where it says fma_rn, and none is approximate. `host.rs` has the same operations in the same order.
// Source: the reduction of Cephes; coefficients of the logarithm by interpolation at Chebyshev's nodes.
#pragma once
#include "vector.cuh"

// ln(1 + f) for f from -1/3 to 1/3, within 1.5 ulp.
__device__ __forceinline__ float ln_1p(float f) {
    float sum = -0.124222f;
    sum = fma_rn(sum, f, 0.13748309f);
    sum = fma_rn(sum, f, -0.12288722f);
    sum = fma_rn(sum, f, 0.14055812f);
    sum = fma_rn(sum, f, -0.16673316f);
    sum = fma_rn(sum, f, 0.20007233f);
    sum = fma_rn(sum, f, -0.24999945f);
    sum = fma_rn(sum, f, 0.33333272f);
    sum = fma_rn(sum, f, -0.5f);
    return fma_rn(sum, mul_rn(f, f), f);
}

// ln(x) of a normal number.
__device__ __forceinline__ float ln(float x) {
    const int exponent = int(bits_of(x) - 0x3f2aaaab) >> 23; // x = 2^exponent * (1 + f), f from -1/3 to 1/3
    const float f = float_of(bits_of(x) - (uint32_t(exponent) << 23)) - 1.0f;
    return fma_rn(float(exponent), LN_2, ln_1p(f));
}

// 2^44 e^x as an integer, for x up to 0. Sums of integers are exact, in any order.
__device__ __forceinline__ uint64_t weight_of(float x) {
    x = fmaxf(x, -32.0f); // NaN, too; the weight of -32 is 0
    const float rounded = fma_rn(x, LOG2_E, 12582912.0f); // + 1.5 * 2^23: an integer, in the lowest bits
    const float n = rounded - 12582912.0f;
    const float r = fma_rn(n, 0.00021219444f, fma_rn(n, -0.6933594f, x)); // x - n ln 2, in two parts
    float sum = 0.00019875691f;
    sum = fma_rn(sum, r, 0.0013981999f);
    sum = fma_rn(sum, r, 0.008333452f);
    sum = fma_rn(sum, r, 0.041665796f);
    sum = fma_rn(sum, r, 0.16666666f);
    sum = fma_rn(sum, r, 0.5f);
    sum = fma_rn(sum, mul_rn(r, r), r) + 1.0f;
    const uint32_t exponent = bits_of(rounded) - 0x4b400000 + 44 + 127;
    return uint64_t(mul_rn(sum, float_of(exponent << 23)));
}
