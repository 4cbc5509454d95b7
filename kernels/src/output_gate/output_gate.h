#ifndef PRECAST_OUTPUT_GATE_H
#define PRECAST_OUTPUT_GATE_H
#include "types.h"

/// output_gate.fwd { d: u32, x: Dtype }: Multiplies the output of each attention head by its gate's sigmoid.
typedef struct output_gate_fwd_params {
    address o;      ///< [tokens, heads, d] x, read
    address packed; ///< [tokens, row_heads, d] x, read: query and gate of each head first
    address y;      ///< [tokens, heads, d] x, write
    uint32_t tokens;
    uint32_t heads;
    uint32_t row_heads; ///< heads of a row of `packed`
    uint32_t reserved;
} output_gate_fwd_params;

/// output_gate.bwd { d: u32, x: Dtype }: Computes the gradients of outputs and gates.
typedef struct output_gate_bwd_params {
    address o;       ///< [tokens, heads, d] x, read
    address packed;  ///< [tokens, row_heads, d] x, read: query and gate of each head first
    address dy;      ///< [tokens, heads, d] x, read
    address d_o;     ///< [tokens, heads, d] x, write
    address dpacked; ///< [tokens, row_heads, d] x, part: gradients of the gates; the rest is untouched
    uint32_t tokens;
    uint32_t heads;
    uint32_t row_heads; ///< heads of a row of `packed`
    uint32_t reserved;
} output_gate_bwd_params;

#endif
