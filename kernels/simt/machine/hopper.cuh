// In place of kernels/cuda/hopper.cuh: what head.distill calls in a cluster alone. A portable kernel never gets there.
#pragma once
#include "mma.cuh"
#include "shared.cuh"

inline uint32_t cluster_cta_rank() { __builtin_trap(); }
inline void cluster_sync() { __builtin_trap(); }
inline void mbarrier_init(uint32_t, uint32_t) { __builtin_trap(); }
inline void fence_mbarrier_init() { __builtin_trap(); }
inline void mbarrier_arrive_expect_tx(uint32_t, uint32_t) { __builtin_trap(); }
inline void mbarrier_wait(uint32_t, uint32_t) { __builtin_trap(); }
inline void st_async(uint32_t, uint32_t, uint32_t, float, float) { __builtin_trap(); }
