#ifndef PRECAST_INT8_TRAINING_H
#define PRECAST_INT8_TRAINING_H
#include "types.h"

/* What training in int8 needs besides `int8.h`. */

typedef struct int8_columns_params {
    address x;     /* [n, columns] */
    address q;     /* [columns, n] i8 */
    address scale; /* [columns] f32 */
    uint32_t columns;
    uint32_t reserved;
} int8_columns_params;

/* What is quantised is the value that is stored in bf16, or would be. */

typedef struct int8_rmsnorm_fwd_params {
    address x;     /* [tokens, h] */
    address delta; /* [tokens, h], with residual */
    address sum;   /* [tokens, h], with residual: x + delta */
    address gamma; /* [h] */
    address y;     /* [tokens, h] */
    address rstd;  /* [tokens] f32 */
    address q;     /* [tokens, h] i8, of y */
    address scale; /* [tokens] f32 */
    float eps;
    uint32_t tokens;
} int8_rmsnorm_fwd_params;

typedef struct int8_rmsnorm_bwd_params {
    address dy;             /* [tokens, h] */
    address x;              /* [tokens, h], what the forward normalised */
    address gamma;          /* [h] */
    address rstd;           /* [tokens] f32 */
    address dresidual;      /* [tokens, h], with residual */
    address dx;             /* [tokens, h] */
    address dgamma_partial; /* [ceil(tokens / rows), h] f32 */
    address q;              /* [tokens, h] i8, of dx */
    address scale;          /* [tokens] f32 */
    uint32_t tokens;
    uint32_t rows; /* rows of x that share one partial */
} int8_rmsnorm_bwd_params;

typedef struct int8_rmsnorm_dgrad_params {
    address dy;        /* [tokens, h] */
    address x;         /* [tokens, h], what the forward normalised */
    address gamma;     /* [h] */
    address rstd;      /* [tokens] f32 */
    address dresidual; /* [tokens, h], with residual */
    address dx;        /* [tokens, h] */
    address q;         /* [tokens, h] i8, of dx */
    address scale;     /* [tokens] f32 */
    uint32_t tokens;
    uint32_t reserved;
} int8_rmsnorm_dgrad_params;

typedef struct int8_gated_params {
    address gate_up; /* [tokens, 2 n]: gate, then up */
    address y;       /* [tokens, n], if kept */
    address q;       /* [tokens, n] i8 */
    address scale;   /* [tokens] f32 */
    uint32_t tokens;
    uint32_t reserved;
} int8_gated_params;

typedef struct int8_gated_bwd_params {
    address gate_up;  /* [tokens, 2 n] */
    address dy;       /* [tokens, n] */
    address dgate_up; /* [tokens, 2 n] */
    address q;        /* [tokens, 2 n] i8, of dgate_up */
    address scale;    /* [tokens] f32 */
    uint32_t tokens;
    uint32_t reserved;
} int8_gated_bwd_params;

#endif
