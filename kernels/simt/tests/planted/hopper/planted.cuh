// The parameter block of planted kernels for Hopper, and its instructions by their own names.
#pragma once
#include "device.cuh"

typedef struct planted_params {
    address x; /* in: bf16[64, 256] */
    address y; /* out: f32[n] */
    uint32_t n;
    uint32_t reserved[11];
    tensor_map maps[1]; /* x */
} planted_params;

#define PTX(text, ...) asm volatile(text ::__VA_ARGS__ : "memory")

__device__ __forceinline__ uint32_t address_of(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
    uint32_t over;
    do {
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!over);
}
__device__ __forceinline__ void init(uint32_t barrier, uint32_t arrivals) {
    PTX("mbarrier.init.shared::cta.b64 [%0], %1;", "r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void announce() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void arrive(uint32_t barrier) { PTX("mbarrier.arrive.shared::cta.b64 _, [%0];", "r"(barrier)); }
__device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) {
    PTX("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", "r"(barrier), "r"(bytes));
}
__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// y += x x^T of 64 rows and a depth of 16, in the 128-byte swizzle.
__device__ __forceinline__ void multiply(float (&d)[32], uint64_t x, bool add) {
    asm volatile("{.reg .pred add; setp.ne.b32 add, %33, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %32, add, 1, 1, 0, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
                   "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31])
                 : "l"(x), "r"(uint32_t(add)));
}
__device__ __forceinline__ uint64_t describe(uint32_t shared, uint64_t stride, uint64_t swizzle) {
    return uint64_t(shared >> 4) | 1ull << 16 | (stride >> 4) << 32 | swizzle << 62;
}
__device__ __forceinline__ void store(const planted_params& p, const float (&d)[32]) {
    const uint32_t warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
    for (uint32_t n = 0; n < 32; n++)
        ((float*)p.y)[(warp * 16 + group + n / 2 % 2 * 8) * 64 + n / 4 * 8 + member * 2 + n % 2] = d[n];
}
