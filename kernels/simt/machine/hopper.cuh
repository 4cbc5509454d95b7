// In place of kernels/cuda/hopper.cuh: what head.distill calls in a cluster alone. A generic kernel never gets there.
#pragma once
#include "mma.cuh"
#include "shared.cuh"

inline uint32_t cluster_rank() { __builtin_trap(); }
inline void sync_cluster() { __builtin_trap(); }
inline void barrier_init(uint32_t, uint32_t) { __builtin_trap(); }
inline void barrier_init_fence() { __builtin_trap(); }
inline void barrier_expect(uint32_t, uint32_t) { __builtin_trap(); }
inline void barrier_wait(uint32_t, uint32_t) { __builtin_trap(); }
inline void send(uint32_t, uint32_t, uint32_t, float, float) { __builtin_trap(); }
