// The activation of an MLP's gate: the gate times a sigmoid, of the gate itself (SiLU) or, with KEY_GATE, of
// t = 2 sqrt(2 / pi) (gate + 0.044715 gate^3). That is GELU by tanh: 1 + tanh(t / 2) is 2 sigmoid(t).
// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
#pragma once
#include "vector.cuh"

#define GELU_LINEAR 1.5957691216057308f
#define GELU_CUBIC 0.07135481627260025f

// Returns what the activation multiplies the gate by; 0 or 1 where the cube overflows.
__device__ __forceinline__ float gate_sigmoid(float gate) {
#ifdef KEY_GATE
    return sigmoid(gate * (GELU_LINEAR + GELU_CUBIC * (gate * gate)));
#else
    return sigmoid(gate);
#endif
}
// Returns the activation's derivative over s, the gate's sigmoid.
__device__ __forceinline__ float gate_slope(float gate, float s) {
#ifdef KEY_GATE
    // From 16 on, s is 0 or 1: t's derivative is multiplied by 0, and might overflow.
    const float dt = fabsf(gate) < 16.0f ? GELU_LINEAR + 3.0f * GELU_CUBIC * (gate * gate) : 0.0f;
    return 1.0f + gate * (1.0f - s) * dt;
#else
    return 1.0f + gate * (1.0f - s);
#endif
}
