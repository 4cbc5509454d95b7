#ifndef PRECAST_POST_NORM_BWD_H
#define PRECAST_POST_NORM_BWD_H
#include "types.h"

/// post_norm.bwd { gamma: Gamma, h: u32, out: Out, x: Dtype }: Computes the gradients of the residual stream and of
/// the branch where the sum is normalized, and partial sums of both gammas'.
typedef struct post_norm_bwd_params {
    address dy;                  ///< [tokens, h] x, read
    address dresidual;           ///< [tokens, h] x, read: of the sum, past its norm
    address sum;                 ///< [tokens, h] x, read
    address branch;              ///< [tokens, h] x, read
    address gamma;               ///< [h] x, read: of the branch's norm
    address next_gamma;          ///< [h] x, read: of the sum's norm
    address rstd;                ///< [tokens] f32, read, uniform(0.5, 1.5): of `branch`
    address next_rstd;           ///< [tokens] f32, read, uniform(0.5, 1.5): of `sum`
    address dx;                  ///< [tokens, h] x, write
    address dbranch;             ///< [tokens, h] x, write
    address dgamma_partial;      ///< [ceil(tokens / rows), h] f32, write
    address dnext_gamma_partial; ///< [ceil(tokens / rows), h] f32, write
    uint32_t tokens;
    uint32_t rows; ///< rows of `dx` that share one partial sum
#ifdef INT8
    address q;     ///< [tokens, h] i8, write if out.is_int8(): of `dbranch`
    address scale; ///< [tokens] f32, write if out.is_int8()
#endif
} post_norm_bwd_params;

#endif
