// What Hopper adds to the portable instructions, wgmma apart (wgmma.cuh): mbarriers with transaction counts, TMA,
// clusters with distributed shared memory, setmaxnreg. Thin wrappers, one instruction each (PTX ISA, "mbarrier",
// "Tensor Map", "Cluster").
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
// Multicast: the same box to the same offset in every CTA of `cta_mask`, whose mbarriers at the same offset count the
// bytes.
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
// Two or four floats to the same offset in another CTA's shared memory; its mbarrier at the same offset counts their
// bytes.
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

// A kernel whose CTAs come in clusters.
#define CLUSTER_KERNEL(params_t, ctas) extern "C" __global__ void __cluster_dims__(ctas, 1, 1) \
    __launch_bounds__(VARIANT_THREADS, VARIANT_BLOCKS) ENTRY(const __grid_constant__ params_t p)
