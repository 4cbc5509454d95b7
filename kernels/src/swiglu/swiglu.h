#ifndef PRECAST_SWIGLU_H
#define PRECAST_SWIGLU_H
#include "types.h"

/// swiglu.fwd { gate: Gate, n: Option<u32>, out: Out, x: Dtype }: Gates the up projection.
typedef struct swiglu_fwd_params {
    address gate_up; ///< [tokens, 2 * n] x, read: gate, then up
    address y;       ///< [tokens, n] x, write if out.is_dense()
    uint32_t tokens;
    uint32_t n;
#ifdef INT8
    address q;     ///< [tokens, n] i8, write if out.is_int8(): of `y`
    address scale; ///< [tokens] f32, write if out.is_int8()
#endif
} swiglu_fwd_params;

/// swiglu.bwd { gate: Gate, n: Option<u32>, out: Out, x: Dtype }: Computes the gradients of gate and up.
typedef struct swiglu_bwd_params {
    address gate_up;  ///< [tokens, 2 * n] x, read: gate, then up
    address dy;       ///< [tokens, n] x, read
    address dgate_up; ///< [tokens, 2 * n] x, write
    uint32_t tokens;
    uint32_t n;
#ifdef INT8
    address q;     ///< [tokens, 2 * n] i8, write if out.is_int8(): of `dgate_up`
    address scale; ///< [tokens] f32, write if out.is_int8()
#endif
} swiglu_bwd_params;

#endif
