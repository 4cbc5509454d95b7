// int8 on tensor cores, as every architecture since sm_80 has it. Four values pass as one register, and a pair of them
// as one element of 16 bits: copies and ldmatrix are those of bf16. Sums are exact.
#pragma once
#include "mma.cuh"

typedef int int32_t;

// d += a b for a 16 x 32, b 32 x 8 in s8 and d 16 x 8 in s32. A row of 32 values lies in registers as 16 of bf16 do.
__device__ __forceinline__ void mma(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
