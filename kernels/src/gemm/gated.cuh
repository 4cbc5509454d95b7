// The gate as swiglu.fwd applies it to what gemm.fwd has stored: both sums are rounded first.
#pragma once
#include "vector.cuh"

template <typename T> __device__ __forceinline__ float gated(float gate, float up) {
    gate = round_to<T>(gate);
    return gate * sigmoid(gate) * round_to<T>(up);
}
