#ifndef PRECAST_SWIGLU_H
#define PRECAST_SWIGLU_H
#include "types.h"

typedef struct swiglu_fwd_params {
    address gate_up; /* [tokens, 2 * n]: gate, then up */
    address y;       /* [tokens, n] */
    uint32_t tokens;
    uint32_t n;
#ifdef INT8
    address q;     /* [tokens, n] i8, of y */
    address scale; /* [tokens] f32 */
#endif
} swiglu_fwd_params;

typedef struct swiglu_bwd_params {
    address gate_up;  /* [tokens, 2 * n] */
    address dy;       /* [tokens, n] */
    address dgate_up; /* [tokens, 2 * n] */
    uint32_t tokens;
    uint32_t n;
#ifdef INT8
    address q;     /* [tokens, 2 * n] i8, of dgate_up */
    address scale; /* [tokens] f32 */
#endif
} swiglu_bwd_params;

#endif
