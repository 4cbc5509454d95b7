// Blocks that share a row: a cluster, whose blocks read each other's shared memory, and bulk copies that bring their
// shares of the row there. Without one (VARIANT_CLUSTER is 1), a block has the row and reads it from global memory.
// Nothing of this but CLUSTER_KERNEL is compiled below sm_90.
#pragma once
#include "device.cuh"

#if VARIANT_CLUSTER == 1
#define CLUSTER_KERNEL(params_t) KERNEL(params_t)
#else
#define CLUSTER_KERNEL(params_t) \
    extern "C" __global__ void __attribute__((cluster_dims(VARIANT_CLUSTER, 1, 1))) \
        __launch_bounds__(VARIANT_THREADS, VARIANT_BLOCKS) ENTRY(const __grid_constant__ params_t p)

__device__ __forceinline__ uint32_t shared_address_of(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Every thread of every block of the cluster arrives before any goes on; what was written to shared memory is seen.
__device__ __forceinline__ void arrive_cluster() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait_cluster() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// What `local`, in shared memory, is in block `rank` of the cluster.
__device__ __forceinline__ float load_cluster(const float* local, uint32_t rank) {
    uint32_t address = shared_address_of(local);
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

// A barrier that opens once, when the bytes announced to it have been copied.
struct Arrival {
    uint64_t state;

    __device__ __forceinline__ void init() {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address_of(&state)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __device__ __forceinline__ void announce(uint32_t bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address_of(&state)), "r"(bytes)
                     : "memory");
    }
    // Starts a copy of a multiple of 16 bytes, both sides aligned to 16.
    __device__ __forceinline__ void copy(void* shared, const void* global, uint32_t bytes) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address_of(shared)),
                     "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address_of(&state))
                     : "memory");
    }
    __device__ __forceinline__ void wait() {
        asm volatile("{\n\t.reg .pred open;\n"
                     "again:\n\tmbarrier.try_wait.parity.shared.b64 open, [%0], 0;\n\t@!open bra again;\n\t}" ::"r"(
                         shared_address_of(&state))
                     : "memory");
    }
};
#endif
