// int8 multiplications of a warpgroup on sm_90a: wgmma.cuh with other elements. A pair of values passes as one element
// of 16 bits: the descriptors, and what TMA copies, are those of bf16. Both operands are in shared memory and K-major.
// Sums are exact.
#pragma once
#include "wgmma.cuh"

typedef int int32_t;

// d = a b, or d += a b if `accumulate`, for a 64 x 32 and b 32 x n in s8 and d 64 x n in s32, laid out as in f32.
#define SUMS(i) "+r"(d[i][0]), "+r"(d[i][1]), "+r"(d[i][2]), "+r"(d[i][3])
#define SUMS4(i) SUMS(i), SUMS(i + 1), SUMS(i + 2), SUMS(i + 3)
#define SUMS8(i) SUMS4(i), SUMS4(i + 4)
#define WGMMA_S8(n, registers, p0, p1, p2, ...) \
    template <bool a_mn, bool b_mn> \
    __device__ __forceinline__ void wgmma(int32_t (&d)[n / 8][4], uint64_t a, uint64_t b, bool accumulate) { \
        static_assert(!a_mn && !b_mn, "8-bit operands are K-major"); \
        asm volatile("{.reg .pred add; setp.ne.b32 add, " p2 ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.s8.s8 {" \
                     registers "}, " p0 ", " p1 ", add;}" \
                     : __VA_ARGS__ \
                     : "l"(a), "l"(b), "r"(uint32_t(accumulate))); \
    }
WGMMA_S8(64, UP_TO_30 "%30, %31", "%32", "%33", "%34", SUMS8(0))
WGMMA_S8(128, UP_TO_60 "%60, %61, %62, %63", "%64", "%65", "%66", SUMS8(0), SUMS8(8))
WGMMA_S8(192, UP_TO_90 "%90, %91, %92, %93, %94, %95", "%96", "%97", "%98", SUMS8(0), SUMS8(8), SUMS8(16))
WGMMA_S8(224, UP_TO_90 TEN(9) TEN(10) "%110, %111", "%112", "%113", "%114", SUMS8(0), SUMS8(8), SUMS8(16), SUMS4(24))
WGMMA_S8(256, UP_TO_90 TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127", "%128", "%129", "%130", SUMS8(0),
         SUMS8(8), SUMS8(16), SUMS8(24))
