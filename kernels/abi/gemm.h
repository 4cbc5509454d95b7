#ifndef PRECAST_GEMM_H
#define PRECAST_GEMM_H
#include "step.h"

/* A linear layer has weights w [n, k] (out features, in features), inputs x [m, k] and outputs y [m, n]. */
typedef struct gemm_fwd_params {
    address x;        /* [m, k] */
    address w;        /* [n, k] */
    address bias;     /* [n], with bias */
    address residual; /* [m, n], with residual */
    address y;        /* [m, n] */
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t reserved[3];
    tensor_map maps[2]; /* x, w */
#ifdef INT8
    address x_scale; /* [m] f32 */
    address w_scale; /* [n] f32 */
    uint32_t reserved_int8[12];
#endif
} gemm_fwd_params;

/* The gated half of an MLP: w [2 n, k] holds the n gate features and then the n up features. */
typedef struct gemm_swiglu_params {
    address x;    /* [m, k] */
    address w;    /* [2 n, k] */
    address bias; /* [2 n], with bias */
    address y;    /* [m, n] */
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t reserved[5];
    tensor_map maps[2]; /* x, w */
#ifdef INT8
    address x_scale; /* [m] f32 */
    address w_scale; /* [2 n] f32 */
    uint32_t reserved_int8[12];
#endif
} gemm_swiglu_params;

typedef struct gemm_dgrad_params {
    address dy;         /* [m, n] */
    address w;          /* [n, k] */
    address dx;         /* [m, k] */
    address workspace;  /* f32, whole tiles, with splits: the sum of the splits so far */
    address semaphores; /* u32, with splits, per tile: the split that may add next; 0 before a launch and after it */
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t splits; /* split-K: CTAs per tile, which add one after the other; 0 or 1 for none */
    uint32_t reserved[2];
    tensor_map maps[2]; /* dy, w */
} gemm_dgrad_params;

typedef struct gemm_wgrad_params {
    address dy;         /* [m, n] */
    address x;          /* [m, k] */
    address micro;      /* micro_scalars */
    address dw;         /* [n, k] f32 */
    address semaphores; /* u32, with splits, per tile: the split that may add next; 0 before a launch and after it */
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t accumulate; /* 1: add to dw whatever micro says (a later chunk of the same micro-batch) */
    uint32_t splits;     /* split-K: CTAs per tile, which add one after the other; 0 or 1 for none */
    uint32_t reserved;
    tensor_map maps[2]; /* dy, x */
} gemm_wgrad_params;

#endif
