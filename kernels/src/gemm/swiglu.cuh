// Computes SwiGLU of accumulators with the bits of swiglu.fwd on gemm.fwd's output, so both are rounded first.
#pragma once
#include "gate.cuh"

template <typename T> __device__ __forceinline__ float swiglu(float gate, float up) {
    gate = round_to<T>(gate);
    return gate * gate_sigmoid(gate) * round_to<T>(up);
}
