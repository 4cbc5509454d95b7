#ifndef PRECAST_ROPE_H
#define PRECAST_ROPE_H
#include "types.h"

/// rope.fwd { d: u32, x: Dtype }: Rotates query and key heads.
/// rope.bwd { d: u32, x: Dtype }: Rotates their gradients back.
typedef struct rope_params {
    address x;        ///< [tokens, row_stride] x, update: the first heads * d of a row; the rest is untouched
    address position; ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    uint32_t tokens;
    uint32_t seq_len;    ///< positions that there are
    uint32_t heads;      ///< query heads and key heads together: they are adjacent
    uint32_t row_stride; ///< elements of a row
} rope_params;

#endif
