// Reduction of a row's sums over lanes, then the warps of a CTA, then the CTAs of a cluster that share the row: a fixed
// tree. `Sums` are floats, of which an empty one is made by default. `Over` reduces them over a group of `width` lanes,
// each of which gets the result, and sends them to another CTA; `context` holds its further inputs.
#pragma once
#include "hopper.cuh"

// Double-buffered: no CTA overwrites values that another may still read. An mbarrier counts the bytes that other CTAs
// send: a cluster barrier would wait for all earlier stores to global memory.
template <typename Sums> struct ReductionStorage {
    enum : uint32_t { WARPS = VARIANT_THREADS / WARP, WARP_STAGES = VARIANT_CLUSTER == 1 ? 2 : 1 };
    // Holds `Sums` as floats: shared memory has no constructors.
    struct alignas(8) Floats {
        float v[sizeof(Sums) / sizeof(float)];
    };
    Floats of_warps[WARP_STAGES][WARPS]; // one stage suffices in a cluster: its CTAs synchronize after the read
    Floats of_ctas[2][VARIANT_CLUSTER];
    uint64_t full[2]; // mbarriers: the sums of all CTAs have arrived
};

// Called by one thread of a cluster's CTA, before a cluster barrier.
template <typename Sums> __device__ __forceinline__ void init(ReductionStorage<Sums>& storage) {
    for (uint32_t stage = 0; stage < 2; stage++) mbarrier_init(shared_address(&storage.full[stage]), 1);
}

// All threads get the result. `iteration` counts calls.
template <typename Over, typename Sums, typename Context>
__device__ __forceinline__ Sums reduce(Sums sums, Context context, ReductionStorage<Sums>& storage, uint32_t iteration) {
    const uint32_t lane = threadIdx.x % WARP, stage = iteration % 2;
    Sums* of_warps = (Sums*)storage.of_warps[iteration % ReductionStorage<Sums>::WARP_STAGES];
    sums = Over::template lanes<WARP>(sums, context);
    if (lane == 0) of_warps[threadIdx.x / WARP] = sums;
    sync_block();
    if (VARIANT_CLUSTER == 1 || threadIdx.x < WARP) {
        sums = lane < ReductionStorage<Sums>::WARPS ? of_warps[lane] : Sums{};
        sums = Over::template lanes<WARP>(sums, context);
    }
    if (VARIANT_CLUSTER == 1) return sums;
    const uint32_t rank = cluster_cta_rank(), full = shared_address(&storage.full[stage]);
    Sums* own = (Sums*)&storage.of_ctas[stage][rank];
    if (threadIdx.x == 0) {
        *own = sums;
        mbarrier_arrive_expect_tx(full, (VARIANT_CLUSTER - 1) * sizeof(Sums));
    }
    if (threadIdx.x < VARIANT_CLUSTER && lane != rank) {
        const uint32_t remote = shared_address(own);
        Over::send(remote, lane, full, sums);
    }
    if (threadIdx.x < WARP) mbarrier_wait(full, iteration / 2 % 2);
    sync_block(); // for other warps too; and `of_warps` has been read
    return Over::template lanes<VARIANT_CLUSTER>(((Sums*)storage.of_ctas[stage])[lane % VARIANT_CLUSTER], context);
}

// CTAs share rows in clusters, which need sm_90, or not at all.
#if VARIANT_CLUSTER == 1
#define ROW_KERNEL(params_t) KERNEL(params_t)
#else
#define ROW_KERNEL(params_t) CLUSTER_KERNEL(params_t, VARIANT_CLUSTER)
#endif
