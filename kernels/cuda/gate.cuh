// The activation of gates: x * gate_factor(x), whose derivative is gate_factor(x) * gate_slope(x, gate_factor(x)).
#pragma once
#include "vector.cuh"

#ifdef KEY_GATE
// GELU by tanh: 0.5 x (1 + tanh(t)) = x sigmoid(2 t) with 2 t = x (LINEAR + CUBIC x^2). Beyond the bound sigmoid is 0 or 1.
#define GELU_LINEAR 1.5957691216f
#define GELU_CUBIC 0.0713548163f
#define GELU_BOUND 12.0f

__device__ __forceinline__ float gelu_bounded(float x) { return fminf(fmaxf(x, -GELU_BOUND), GELU_BOUND); }
__device__ __forceinline__ float gate_factor(float x) {
    const float c = gelu_bounded(x);
    return sigmoid(c * (GELU_LINEAR + GELU_CUBIC * c * c));
}
__device__ __forceinline__ float gate_slope(float x, float s) {
    const float c = gelu_bounded(x);
    return 1.0f + c * (1.0f - s) * (GELU_LINEAR + 3.0f * GELU_CUBIC * c * c);
}
#else
__device__ __forceinline__ float gate_factor(float x) { return sigmoid(x); }
__device__ __forceinline__ float gate_slope(float x, float s) { return 1.0f + x * (1.0f - s); }
#endif
