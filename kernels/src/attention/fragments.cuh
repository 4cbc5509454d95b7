// What the tensor-core attention kernels share, whichever instruction multiplies: results as operands of the next
// product. Exponentials are to base 2, of scores that are scaled by log2(e).
#pragma once
#include "attention.h"
#include "mma.cuh"
#include "shared.cuh"
#include "vector.cuh"

// Operand a, step `step`, of a result of products: columns 16 * step.. of it rounded to bf16.
template <uint32_t n>
__device__ __forceinline__ void pack_a(uint32_t (&a)[4], const float (&d)[n][4], uint32_t step) {
    a[0] = pack_bf16x2(d[2 * step][0], d[2 * step][1]);
    a[1] = pack_bf16x2(d[2 * step][2], d[2 * step][3]);
    a[2] = pack_bf16x2(d[2 * step + 1][0], d[2 * step + 1][1]);
    a[3] = pack_bf16x2(d[2 * step + 1][2], d[2 * step + 1][3]);
}
