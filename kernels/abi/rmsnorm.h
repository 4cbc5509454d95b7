#ifndef PRECAST_RMSNORM_H
#define PRECAST_RMSNORM_H
#include "types.h"

typedef struct rmsnorm_fwd_params {
    address x;     /* [tokens, h] */
    address delta; /* [tokens, h], with residual */
    address sum;   /* [tokens, h], with residual: x + delta */
    address gamma; /* [h] */
    address y;     /* [tokens, h] */
    address rstd;  /* [tokens] f32 */
    float eps;
    uint32_t tokens;
#ifdef INT8
    address q;     /* [tokens, h] i8, of y */
    address scale; /* [tokens] f32 */
#endif
} rmsnorm_fwd_params;

typedef struct rmsnorm_bwd_params {
    address dy;             /* [tokens, h] */
    address x;              /* [tokens, h], what the forward normalized */
    address gamma;          /* [h] */
    address rstd;           /* [tokens] f32 */
    address dresidual;      /* [tokens, h], with residual */
    address dx;             /* [tokens, h] */
    address dgamma_partial; /* [ceil(tokens / rows), h] f32 */
    uint32_t tokens;
    uint32_t rows; /* rows of x that share one partial */
#ifdef INT8
    address q;     /* [tokens, h] i8, of dx */
    address scale; /* [tokens] f32 */
#endif
} rmsnorm_bwd_params;

#endif
