#ifndef PRECAST_ROPE_AT_H
#define PRECAST_ROPE_AT_H
#include "types.h"

/// rope.at { d: u32, x: Dtype }: Rotates query and key heads of rows at positions of their own.
typedef struct rope_at_params {
    address x;        ///< [rows, row_stride] x, update: the first heads * d of a row; the rest is untouched
    address cos;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address position; ///< [rows] u32, read, ids(seq_len)
    uint32_t rows;
    uint32_t seq_len;
    uint32_t heads;      ///< query heads and key heads together: they are adjacent
    uint32_t row_stride; ///< elements of a row
} rope_at_params;

#endif
