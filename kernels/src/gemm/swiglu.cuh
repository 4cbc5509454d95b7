// Computes SwiGLU of accumulators with the bits of swiglu.fwd on gemm.fwd's output, so both are rounded first.
#pragma once
#include "gate.cuh"

__device__ __forceinline__ float gated(float gate, float up) { return gate * gate_sigmoid(gate) * up; }

template <typename T> __device__ __forceinline__ float swiglu(float gate, float up) {
    return gated(round_to<T>(gate), round_to<T>(up));
}
