// The form in which the weight of a norm is stored.
#pragma once
#include "device.cuh"

// Returns what rows are multiplied by. 1 + w is not stored: bf16 would lose what is finer than 1/128 in w.
__device__ __forceinline__ float gamma_of(float weight) {
#ifdef KEY_GAMMA
    return 1.0f + weight;
#else
    return weight;
#endif
}
