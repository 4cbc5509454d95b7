#ifndef PRECAST_POST_NORM_H
#define PRECAST_POST_NORM_H
#include "types.h"

/// post_norm.fwd { gamma: Gamma, h: u32, next: bool, out: Out, x: Dtype }: Adds normalized rows of a branch to the
/// residual stream; normalizes the sum if `next`.
typedef struct post_norm_fwd_params {
    address x;          ///< [tokens, h] x, read: the residual stream
    address branch;     ///< [tokens, h] x, read
    address gamma;      ///< [h] x, read: of the branch's norm
    address next_gamma; ///< [h] x, read if next: of the sum's norm
    address rstd;       ///< [tokens] f32, write if out.is_dense(): of `branch`
    address sum;        ///< [tokens, h] x, write
    address next_rstd;  ///< [tokens] f32, write if next && out.is_dense(): of `sum`
    address y;          ///< [tokens, h] x, write if next && out.is_dense(): the sum, normalized
    float eps;
    uint32_t tokens;
#ifdef INT8
    address q;     ///< [tokens, h] i8, write if out.is_int8(): of `y`
    address scale; ///< [tokens] f32, write if out.is_int8()
#endif
} post_norm_fwd_params;

#endif
