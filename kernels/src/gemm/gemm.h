#ifndef PRECAST_GEMM_H
#define PRECAST_GEMM_H
#include "step.h"
#include "tiles.h"

/* A linear layer has weights w [n, k] (out features, in features), inputs x [m, k] and outputs y [m, n]. One of experts
   has weights of each, one below the other, and rows that lie by expert: it multiplies those of a list of tiles, as
   `moe.sort` makes it, each by its expert's. */

/// gemm.fwd { bias: bool, experts: Flag, residual: bool, w: Format, x: Format }: Multiplies inputs by weights.
/// flops: 2 * listed_rows() * n * k
typedef struct gemm_fwd_params {
    address x;        ///< [m, k] x, read
    address w;        ///< [matrices() * n, k] w, read
    address bias;     ///< [n] x.output(), read if bias
    address residual; ///< [m, n] x.output(), read if residual
    address y;        ///< [m, n] x.output(), write if !experts.is_set(), part if experts.is_set(): of listed tiles
    uint32_t m;       ///< rows: tokens
    uint32_t n;       ///< out features
    uint32_t k;       ///< in features
    uint32_t experts_of; ///< if experts.is_set(), experts of the list, and 65536 times those of the layer
    address tiles;      ///< [list(), 4] u32, read if experts.is_set(), expert_tiles(m, matrices(), 128)
    tensor_map maps[2]; ///< `x`, `w`
#ifdef INT8
    address x_scale; ///< [m] f32, read if x == i8, uniform(1e-3, 2e-2)
    address w_scale; ///< [matrices() * n] f32, read if x == i8, uniform(1e-3, 2e-2)
    uint32_t reserved_int8[12];
#endif
} gemm_fwd_params;

/// gemm.swiglu { bias: bool, experts: Flag, gate: Gate, w: Format, x: Format }: Multiplies by gate and up, and gates.
/// flops: 2 * listed_rows() * 2 * n * k
typedef struct gemm_swiglu_params {
    address x;    ///< [m, k] x, read
    address w;    ///< [matrices() * 2 * n, k] w, read: the gate features, then the up features
    address bias; ///< [2 * n] x.output(), read if bias
    address y;    ///< [m, n] x.output(), write if !experts.is_set(), part if experts.is_set(): of listed tiles
    uint32_t m;   ///< rows: tokens
    uint32_t n;   ///< out features: half of those that are computed
    uint32_t k;   ///< in features
    uint32_t experts_of; ///< if experts.is_set(), experts of the list, and 65536 times those of the layer
    address tiles; ///< [list(), 4] u32, read if experts.is_set(), expert_tiles(m, matrices(), 128)
    uint32_t reserved_behind[2];
    tensor_map maps[2]; ///< `x`, `w`
#ifdef INT8
    address x_scale; ///< [m] f32, read if x == i8, uniform(1e-3, 2e-2)
    address w_scale; ///< [matrices() * 2 * n] f32, read if x == i8, uniform(1e-3, 2e-2)
    uint32_t reserved_int8[12];
#endif
} gemm_swiglu_params;

/// gemm.dgrad { w: Format, x: Dtype }: Computes the gradient of the inputs.
/// flops: 2 * m * n * k
typedef struct gemm_dgrad_params {
    address dy;         ///< [m, n] x, read
    address w;          ///< [n, k] w, read
    address dx;         ///< [m, k] x, write
    address workspace;  ///< [workspace()] f32, scratch if splits > 1: whole tiles, the sum of the splits so far
    address semaphores; ///< [semaphores()] u32, update if splits > 1, zeros: per tile the split that may add next; 0 between launches
    uint32_t m;         ///< rows: tokens
    uint32_t n;         ///< out features
    uint32_t k;         ///< in features
    uint32_t splits;    ///< split-K: CTAs per tile, which add one after the other; 0 or 1 for none
    uint32_t reserved[2];
    tensor_map maps[2]; ///< `dy`, `w`
} gemm_dgrad_params;

/// gemm.wgrad { x: Dtype }: Computes the gradient of the weights.
/// flops: 2 * m * n * k
typedef struct gemm_wgrad_params {
    address dy;          ///< [m, n] x, read
    address x;           ///< [m, k] x, read
    address micro;       ///< micro_scalars, read
    address dw;          ///< [n, k] f32, update
    address semaphores;  ///< [semaphores()] u32, update if splits > 1, zeros: per tile the split that may add next; 0 between launches
    uint32_t m;          ///< rows: tokens
    uint32_t n;          ///< out features
    uint32_t k;          ///< in features
    uint32_t accumulate; ///< 1: adds to `dw` whatever `micro` says (a later chunk of the same micro-batch)
    uint32_t splits;     ///< split-K: CTAs per tile, which add one after the other; 0 or 1 for none
    uint32_t reserved;
    tensor_map maps[2]; ///< `dy`, `x`
} gemm_wgrad_params;

#endif
