#ifndef PRECAST_GATED_NORM_H
#define PRECAST_GATED_NORM_H
#include "types.h"

/// gated_norm.fwd { d: u32, x: Dtype }: Normalizes each head, and multiplies by the weight and the gate's SiLU.
typedef struct gated_norm_fwd_params {
    address x;     ///< [tokens, heads, d] x, read
    address gates; ///< [tokens, gate_columns] x, read: gates of heads from column `column`
    address gamma; ///< [d] x, read
    address y;     ///< [tokens, heads, d] x, write
    float eps;
    uint32_t tokens;
    uint32_t heads;
    uint32_t gate_columns; ///< elements of a row of `gates`
    uint32_t column;
    uint32_t reserved;
} gated_norm_fwd_params;

/// gated_norm.bwd { d: u32, x: Dtype }: Computes the gradients of heads and gates, and sums that of gamma over `rows`
/// tokens.
typedef struct gated_norm_bwd_params {
    address x;              ///< [tokens, heads, d] x, read
    address gates;          ///< [tokens, gate_columns] x, read: gates of heads from column `column`
    address gamma;          ///< [d] x, read
    address dy;             ///< [tokens, heads, d] x, read
    address dx;             ///< [tokens, heads, d] x, write
    address dgates;         ///< [tokens, gate_columns] x, part: gradients of the gates; the rest is untouched
    address dgamma_partial; ///< [ceil(tokens / rows), d] f32, write
    float eps;
    uint32_t tokens;
    uint32_t heads;
    uint32_t gate_columns; ///< elements of a row of `gates`
    uint32_t column;
    uint32_t rows; ///< tokens that share one partial sum
} gated_norm_bwd_params;

/// gated_norm.dgrad { d: u32, x: Dtype }: Computes the gradients of heads and gates where gamma does not train.
typedef struct gated_norm_dgrad_params {
    address x;      ///< [tokens, heads, d] x, read
    address gates;  ///< [tokens, gate_columns] x, read: gates of heads from column `column`
    address gamma;  ///< [d] x, read
    address dy;     ///< [tokens, heads, d] x, read
    address dx;     ///< [tokens, heads, d] x, write
    address dgates; ///< [tokens, gate_columns] x, part: gradients of the gates; the rest is untouched
    float eps;
    uint32_t tokens;
    uint32_t heads;
    uint32_t gate_columns; ///< elements of a row of `gates`
    uint32_t column;
    uint32_t reserved;
} gated_norm_dgrad_params;

#endif
