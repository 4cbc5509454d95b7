#ifndef PRECAST_RMSNORM_H
#define PRECAST_RMSNORM_H
#include "types.h"

/// rmsnorm.fwd { gamma: Gamma, h: u32, out: Out, residual: bool, x: Dtype }: Normalizes rows, after adding a residual
/// branch if `residual`.
typedef struct rmsnorm_fwd_params {
    address x;     ///< [tokens, h] x, read
    address delta; ///< [tokens, h] x, read if residual: the branch
    address sum;   ///< [tokens, h] x, write if residual: x + delta
    address gamma; ///< [h] x, read
    address y;     ///< [tokens, h] x, write if out.is_dense()
    address rstd;  ///< [tokens] f32, write if out.is_dense()
    float eps;
    uint32_t tokens;
#ifdef INT8
    address q;     ///< [tokens, h] i8, write if out.is_int8(): of `y`
    address scale; ///< [tokens] f32, write if out.is_int8()
#endif
} rmsnorm_fwd_params;

/// rmsnorm.bwd { gamma: Gamma, h: u32, out: Out, residual: bool, x: Dtype }: Computes the gradient of the rows, added
/// to the residual stream's if `residual`, and partial sums of gamma's.
typedef struct rmsnorm_bwd_params {
    address dy;             ///< [tokens, h] x, read
    address x;              ///< [tokens, h] x, read: what the forward pass normalized
    address gamma;          ///< [h] x, read
    address rstd;           ///< [tokens] f32, read, uniform(0.5, 1.5)
    address dresidual;      ///< [tokens, h] x, read if residual
    address dx;             ///< [tokens, h] x, write
    address dgamma_partial; ///< [ceil(tokens / rows), h] f32, write
    uint32_t tokens;
    uint32_t rows; ///< rows of `x` that share one partial sum
#ifdef INT8
    address q;     ///< [tokens, h] i8, write if out.is_int8(): of `dx`
    address scale; ///< [tokens] f32, write if out.is_int8()
#endif
} rmsnorm_bwd_params;

#endif
