// Rows of queries and keys in f32.
#pragma once
#include "delta_rule/chunk.cuh"

// A row in vectors of eight.
struct Row {
    const float* data;
    struct Eight {
        float4_t v[2];
        __device__ __forceinline__ float operator[](uint32_t i) const { return v[i / 4].v[i % 4]; }
    };
    __device__ __forceinline__ Eight operator()(uint32_t i) const {
        return {load4(data + 8 * i), load4(data + 8 * i + 4)};
    }
};

__device__ __forceinline__ float dot(const float* a, const float* b) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < HEAD; i++) sum = fmaf(a[i], b[i], sum);
    return sum;
}
