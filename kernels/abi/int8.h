#ifndef PRECAST_INT8_H
#define PRECAST_INT8_H
#include "types.h"

/* A quantised matrix is its values, i8 [rows, k], and a scale for each row, f32: an element is their product. */
typedef struct int8_quantize_params {
    address x;     /* [rows, k] */
    address q;     /* [rows, k] i8 */
    address scale; /* [rows] f32 */
    uint32_t rows;
    uint32_t reserved;
} int8_quantize_params;

typedef struct int8_rmsnorm_params {
    address x;     /* [tokens, h] */
    address delta; /* [tokens, h], with residual */
    address sum;   /* [tokens, h], with residual: x + delta */
    address gamma; /* [h] */
    address q;     /* [tokens, h] i8 */
    address scale; /* [tokens] f32 */
    float eps;
    uint32_t tokens;
} int8_rmsnorm_params;

/* A linear layer: weights w [n, k] (out features, in features), inputs x [m, k] and outputs y [m, n]. */
typedef struct int8_fwd_params {
    address x;        /* [m, k] i8 */
    address w;        /* [n, k] i8 */
    address x_scale;  /* [m] f32 */
    address w_scale;  /* [n] f32 */
    address bias;     /* [n], with bias */
    address residual; /* [m, n], with residual */
    address y;        /* [m, n] */
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t reserved[15];
    tensor_map maps[2]; /* x, w */
} int8_fwd_params;

/* The gated half of an MLP: w [2 n, k] holds the n gate features and then the n up features. */
typedef struct int8_swiglu_params {
    address x;       /* [m, k] i8 */
    address w;       /* [2 n, k] i8 */
    address x_scale; /* [m] f32 */
    address w_scale; /* [2 n] f32 */
    address bias;    /* [2 n], with bias */
    address y;       /* [m, n] */
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t reserved;
    tensor_map maps[2]; /* x, w */
} int8_swiglu_params;

#endif
