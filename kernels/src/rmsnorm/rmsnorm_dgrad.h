#ifndef PRECAST_RMSNORM_DGRAD_H
#define PRECAST_RMSNORM_DGRAD_H
#include "types.h"

/// rmsnorm.dgrad { gamma: Gamma, h: u32, out: Out, residual: bool, x: Dtype }: Computes the gradient of the rows where
/// gamma does not train.
typedef struct rmsnorm_dgrad_params {
    address dy;        ///< [tokens, h] x, read
    address x;         ///< [tokens, h] x, read: what the forward pass normalized
    address gamma;     ///< [h] x, read
    address rstd;      ///< [tokens] f32, read, uniform(0.5, 1.5)
    address dresidual; ///< [tokens, h] x, read if residual
    address dx;        ///< [tokens, h] x, write
    uint32_t tokens;
    uint32_t reserved;
#ifdef INT8
    address q;     ///< [tokens, h] i8, write if out.is_int8(): of `dx`
    address scale; ///< [tokens] f32, write if out.is_int8()
#endif
} rmsnorm_dgrad_params;

#endif
