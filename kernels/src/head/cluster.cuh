// Blocks that share a row: a cluster, whose blocks read each other's shared memory. Without one, a block has the row.
// Only where VARIANT_CLUSTER is greater than 1 does any of this need sm_90.
#pragma once
#include "device.cuh"

#if VARIANT_CLUSTER > 1
#define CLUSTER_KERNEL(params_t) \
    extern "C" __global__ void __attribute__((cluster_dims(VARIANT_CLUSTER, 1, 1))) \
        __launch_bounds__(VARIANT_THREADS, 1) ENTRY(const __grid_constant__ params_t p)
#else
#define CLUSTER_KERNEL(params_t) KERNEL(params_t)
#endif

#if VARIANT_CLUSTER > 1
// Every thread of every block of the cluster arrives before any goes on; what was written to shared memory is seen.
__device__ __forceinline__ void arrive_cluster() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait_cluster() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// What `local`, in shared memory, is in block `rank` of the cluster.
__device__ __forceinline__ float load_cluster(const float* local, uint32_t rank) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(local));
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}
#endif
