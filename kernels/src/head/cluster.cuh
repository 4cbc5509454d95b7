// A cluster: blocks that run together and write to each other's shared memory. VARIANT_CLUSTER blocks share a row.
// With VARIANT_CLUSTER 1, a block has the row and nothing of this is compiled but CLUSTER_KERNEL: it needs sm_90.
// A write is seen by its reader after both have met at `sync_cluster`.
#pragma once
#include "mma.cuh"

#if VARIANT_CLUSTER == 1
#define CLUSTER_KERNEL(params_t) KERNEL(params_t)
#else
#define CLUSTER_KERNEL(params_t) \
    extern "C" __global__ void __attribute__((cluster_dims(VARIANT_CLUSTER, 1, 1))) \
        __launch_bounds__(VARIANT_THREADS, VARIANT_BLOCKS) ENTRY(const __grid_constant__ params_t p)

__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

// Writes to what `local`, in shared memory, is in block `rank` of the cluster.
__device__ __forceinline__ void store_cluster(float* local, uint32_t rank, float value) {
    asm volatile("{\n\t.reg .u32 place;\n\tmapa.shared::cluster.u32 place, %0, %1;\n\t"
                 "st.shared::cluster.f32 [place], %2;\n\t}" ::"r"(shared_address(local)),
                 "r"(rank), "f"(value)
                 : "memory");
}
#endif
