#ifndef PRECAST_NORM_DGRAD_H
#define PRECAST_NORM_DGRAD_H
#include "types.h"

/* Gradients of norms whose gammas do not train. */

typedef struct rmsnorm_dgrad_params {
    address dy;        /* [tokens, h] */
    address x;         /* [tokens, h], what the forward normalized */
    address gamma;     /* [h] */
    address rstd;      /* [tokens] f32 */
    address dresidual; /* [tokens, h], with residual */
    address dx;        /* [tokens, h] */
    uint32_t tokens;
    uint32_t reserved;
#ifdef INT8
    address q;     /* [tokens, h] i8, of dx */
    address scale; /* [tokens] f32 */
#endif
} rmsnorm_dgrad_params;

typedef struct qk_norm_dgrad_params {
    address dx;    /* [tokens, row_heads, d]: gradient of the rotated heads, replaced by that of raw */
    address raw;   /* [tokens, query_heads + key_heads, d], what the forward normalized */
    address gamma; /* [2, d] */
    address cos;   /* [seq_len, d / 2] f32 */
    address sin;   /* [seq_len, d / 2] f32 */
    float eps;
    uint32_t tokens;
    uint32_t seq_len;
    uint32_t query_heads;
    uint32_t key_heads;
    uint32_t row_heads;
} qk_norm_dgrad_params;

#endif
