#ifndef PRECAST_QK_NORM_AT_H
#define PRECAST_QK_NORM_AT_H
#include "types.h"

/// qk_norm.at { d: u32, x: Dtype }: Normalizes query and key heads of rows, and rotates them at positions of their own.
typedef struct qk_norm_at_params {
    address x;        ///< [rows, row_heads, d] x, update: query and key heads, in place; the rest is untouched
    address gamma;    ///< [2, d] x, read: of queries, of keys
    address cos;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address position; ///< [rows] u32, read, ids(seq_len)
    float eps;
    uint32_t rows;
    uint32_t seq_len;
    uint32_t query_heads;
    uint32_t key_heads; ///< behind the query heads of a row
    uint32_t row_heads; ///< heads of a row, values' included
} qk_norm_at_params;

#endif
