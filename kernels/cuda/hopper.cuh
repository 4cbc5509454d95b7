// What sm_90a has and no other architecture: mbarriers with transaction counts, TMA, clusters with distributed shared
// memory, and wgmma. Thin wrappers, one instruction each (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions",
// "Tensor Map").
#pragma once
#include "mma.cuh"
#include "shared.cuh"

// ---- mbarriers ----------------------------------------------------------------------------------------

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialized mbarriers visible to the cluster and to the async proxy.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Arrives, and adds `bytes` to the transactions that the phase waits for.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits until the phase of this parity has completed.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{.reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2; "
                     "selp.u32 %0, 1, 0, over;}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

// Named barrier of `threads` threads of the CTA, whichever they are. Barrier 0 is sync_block's.
__device__ __forceinline__ void named_barrier_sync(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- TMA ----------------------------------------------------------------------------------------------

__device__ __forceinline__ void prefetch_tensor_map(const tensor_map* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Starts the TMA load of the box at (x, y), x along memory, into shared memory; what is out of bounds becomes 0.
__device__ __forceinline__ void tma_load_2d(uint32_t shared, const tensor_map* map, uint32_t x, uint32_t y, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(shared), "l"(map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}
// Multicast: the same box to the same offset in every CTA of `cta_mask`, whose mbarriers at the same offset count the bytes.
__device__ __forceinline__ void tma_load_2d_multicast(uint32_t shared, const tensor_map* map, uint32_t x, uint32_t y,
                                                      uint32_t barrier, uint16_t cta_mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4}], [%2], %5;" ::"r"(shared),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(cta_mask)
                 : "memory");
}
// Orders this thread's generic-proxy accesses of shared memory before TMA and wgmma accesses that follow.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Four 8 x 8 matrices of 16-bit elements to shared memory; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void stmatrix_x4(uint32_t shared, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(r0), "r"(r1),
                 "r"(r2), "r"(r3)
                 : "memory");
}

// ---- clusters -----------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t cluster_cta_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Arrives at the mbarrier at the same offset in CTA `cta` of the cluster.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier, uint32_t cta) {
    asm volatile("{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(barrier), "r"(cta)
                 : "memory");
}
// Two or four floats to the same offset in another CTA's shared memory; its mbarrier at the same offset counts their bytes.
__device__ __forceinline__ void st_async(uint32_t shared, uint32_t cta, uint32_t barrier, float first, float second) {
    asm volatile("{.reg .b32 remote, told; mapa.shared::cluster.u32 remote, %0, %1; mapa.shared::cluster.u32 told, %2, %1; "
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [remote], {%3, %4}, [told];}" ::"r"(shared),
                 "r"(cta), "r"(barrier), "f"(first), "f"(second)
                 : "memory");
}
__device__ __forceinline__ void st_async(uint32_t shared, uint32_t cta, uint32_t barrier, float a, float b, float c, float d) {
    asm volatile("{.reg .b32 remote, told; mapa.shared::cluster.u32 remote, %0, %1; mapa.shared::cluster.u32 told, %2, %1; "
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote], {%3, %4, %5, %6}, [told];}"
                 ::"r"(shared), "r"(cta), "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}
// Adds four floats in global memory, returning nothing.
__device__ __forceinline__ void red_add4(float* p, uint4_t v) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(__uint_as_float(v.v[0])),
                 "f"(__uint_as_float(v.v[1])), "f"(__uint_as_float(v.v[2])), "f"(__uint_as_float(v.v[3]))
                 : "memory");
}

// ---- warpgroups ---------------------------------------------------------------------------------------

// Moves registers from producer warpgroups to consumer warpgroups.
template <uint32_t registers> __device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <uint32_t registers> __device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// Matrix descriptor of an operand in shared memory in the 128-byte swizzle that TMA writes. K-major: `leading` means
// nothing and `stride` is the distance of eight rows. MN-major: `leading` is the distance of 64 rows and `stride` that of
// eight steps of K.
__device__ __forceinline__ uint64_t smem_descriptor(uint32_t shared, uint32_t leading, uint32_t stride) {
    return uint64_t((shared & 0x3ffff) >> 4) | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// d = a b or d += a b for a 64 x 16, b 16 x n in bf16 and d 64 x n in f32, by a warpgroup. Thread (warp w, group g, member
// t) holds d[4 j ..] = rows 16 w + g and, from d[4 j + 2], that plus 8; columns 8 j + 2 t and the next.
// `a_mn`, `b_mn`: the operand is MN-major. Asm operands are numbered: TEN(t) names registers 10 t to 10 t + 9.
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define UP_TO_60 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
#define UP_TO_90 UP_TO_60 TEN(6) TEN(7) TEN(8)
#define ACC8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
    "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC32(i) ACC8(i), ACC8(i + 8), ACC8(i + 16), ACC8(i + 24)
#define WGMMA(n, registers, a_at, b_at, add_at, a_mn_at, b_mn_at, ...) \
    template <bool a_mn, bool b_mn> \
    __device__ __forceinline__ void wgmma(float (&d)[n / 2], uint64_t a, uint64_t b, bool add) { \
        asm volatile("{.reg .pred add; setp.ne.b32 add, " add_at ", 0; wgmma.mma_async.sync.aligned.m64n" #n \
                     "k16.f32.bf16.bf16 {" registers "}, " a_at ", " b_at ", add, 1, 1, " a_mn_at ", " b_mn_at ";}" \
                     : __VA_ARGS__ \
                     : "l"(a), "l"(b), "r"(uint32_t(add)), "n"(a_mn), "n"(b_mn)); \
    }
WGMMA(128, UP_TO_60 "%60, %61, %62, %63", "%64", "%65", "%66", "%67", "%68", ACC32(0), ACC32(32))
WGMMA(192, UP_TO_90 "%90, %91, %92, %93, %94, %95", "%96", "%97", "%98", "%99", "%100", ACC32(0), ACC32(32), ACC32(64))
WGMMA(224, UP_TO_90 TEN(9) TEN(10) "%110, %111", "%112", "%113", "%114", "%115", "%116", ACC32(0), ACC32(32), ACC32(64),
        ACC8(96), ACC8(104))
WGMMA(256, UP_TO_90 TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127", "%128", "%129", "%130", "%131",
        "%132", ACC32(0), ACC32(32), ACC32(64), ACC32(96))

// A kernel whose CTAs come in clusters.
#define CLUSTER_KERNEL(params_t, ctas) extern "C" __global__ void __cluster_dims__(ctas, 1, 1) \
    __launch_bounds__(VARIANT_THREADS, VARIANT_BLOCKS) ENTRY(const __grid_constant__ params_t p)
