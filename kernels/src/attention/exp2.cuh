// Exponentials to base 2: what the machine has, so scores are scaled by log2(e) beforehand.
#pragma once
#include "device.cuh"

#define LOG2_E 1.44269504f
#define LN_2 0.69314718f

// 2^x; 2^-inf is 0.
__device__ __forceinline__ float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
