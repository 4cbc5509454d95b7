// Scales an exact sum of products: sum * (x_scale * w_scale), each operation rounded separately, nothing fused. Outputs
// do not depend on the order of the sum.
#pragma once
#include "mma_s8.cuh"

// Scales of two neighboring columns.
struct alignas(8) float2_t {
    float v[2];
};

__device__ __forceinline__ float scaled(int32_t sum, float x_scale, float w_scale) {
    return mul_rn(float(sum), mul_rn(x_scale, w_scale));
}
