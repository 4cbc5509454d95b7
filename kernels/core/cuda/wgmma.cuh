// Tensor cores of sm_90a: wgmma, asynchronous multiplications of a warpgroup with B, and A or not, in shared memory.
// One wrapper for matrix multiplications and attention (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
#pragma once
#include "device.cuh"

// ---- operands in shared memory ------------------------------------------------------------------------

// Lower word of a matrix descriptor: where the operand starts and `leading`, both in units of 16 bytes. Adding to it
// moves the operand, which takes no carry: shared memory ends below 2^18. K-major: `leading` means nothing and eight
// rows are a swizzle atom. MN-major: `leading` is the distance of 64 rows and eight steps of K are an atom.
__device__ __forceinline__ uint32_t descriptor_word(uint32_t shared, uint32_t leading) {
    return (shared & 0x3ffff) >> 4 | leading >> 4 << 16;
}
// The descriptor: the 128-byte swizzle that TMA writes (1 in the upper two bits), 1024 bytes from one atom to the next.
__device__ __forceinline__ uint64_t smem_descriptor(uint32_t word) { return 1ull << 62 | uint64_t(1024 >> 4) << 32 | word; }

// ---- order ----------------------------------------------------------------------------------------------

// Orders register accesses before the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Keeps the compiler from reading accumulators before a wait, or from writing them after a wgmma has begun.
template <uint32_t n> __device__ __forceinline__ void wgmma_fence_operand(float (&d)[n][4]) {
#pragma unroll
    for (uint32_t i = 0; i < n; i++) asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

// ---- multiplication ----------------------------------------------------------------------------------

// d = a b, or d += a b if `accumulate`, for a 64 x 16 and b 16 x n in bf16 and d 64 x n in f32. Thread (warp w, group
// g, member t) holds d[j][0..] = row 16 w + g, d[j][2..] = row 16 w + g + 8; columns 8 j + 2 t and the next. A is in
// shared memory, or in registers as the operand of an mma. `a_mn`, `b_mn`: the operand is MN-major, and not K-major.
// Asm operands are numbered: TEN(t) names registers 10 t to 10 t + 9; p0.. are those that follow the accumulators.
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define UP_TO_30 TEN() TEN(1) TEN(2)
#define UP_TO_60 UP_TO_30 TEN(3) TEN(4) TEN(5)
#define UP_TO_90 UP_TO_60 TEN(6) TEN(7) TEN(8)
#define ACC(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define ACC4(i) ACC(i), ACC(i + 1), ACC(i + 2), ACC(i + 3)
#define ACC8(i) ACC4(i), ACC4(i + 4)
#define WGMMA(n, registers, p0, p1, p2, p3, p4, p5, p6, ...) \
    template <bool a_mn, bool b_mn> \
    __device__ __forceinline__ void wgmma(float (&d)[n / 8][4], uint64_t a, uint64_t b, bool accumulate) { \
        asm volatile("{.reg .pred add; setp.ne.b32 add, " p2 ", 0; wgmma.mma_async.sync.aligned.m64n" #n \
                     "k16.f32.bf16.bf16 {" registers "}, " p0 ", " p1 ", add, 1, 1, " p3 ", " p4 ";}" \
                     : __VA_ARGS__ \
                     : "l"(a), "l"(b), "r"(uint32_t(accumulate)), "n"(a_mn), "n"(b_mn)); \
    } \
    template <bool b_mn> \
    __device__ __forceinline__ void wgmma(float (&d)[n / 8][4], const uint32_t (&a)[4], uint64_t b, bool accumulate) { \
        asm volatile("{.reg .pred add; setp.ne.b32 add, " p5 ", 0; wgmma.mma_async.sync.aligned.m64n" #n \
                     "k16.f32.bf16.bf16 {" registers "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4 ", add, 1, 1, " p6 ";}" \
                     : __VA_ARGS__ \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(uint32_t(accumulate)), "n"(b_mn)); \
    }
WGMMA(64, UP_TO_30 "%30, %31", "%32", "%33", "%34", "%35", "%36", "%37", "%38", ACC8(0))
WGMMA(128, UP_TO_60 "%60, %61, %62, %63", "%64", "%65", "%66", "%67", "%68", "%69", "%70", ACC8(0), ACC8(8))
WGMMA(192, UP_TO_90 "%90, %91, %92, %93, %94, %95", "%96", "%97", "%98", "%99", "%100", "%101", "%102", ACC8(0), ACC8(8),
      ACC8(16))
WGMMA(224, UP_TO_90 TEN(9) TEN(10) "%110, %111", "%112", "%113", "%114", "%115", "%116", "%117", "%118", ACC8(0), ACC8(8),
      ACC8(16), ACC4(24))
WGMMA(256, UP_TO_90 TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127", "%128", "%129", "%130", "%131",
      "%132", "%133", "%134", ACC8(0), ACC8(8), ACC8(16), ACC8(24))
