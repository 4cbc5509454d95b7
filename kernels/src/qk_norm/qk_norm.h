#ifndef PRECAST_QK_NORM_H
#define PRECAST_QK_NORM_H
#include "types.h"

/// qk_norm.fwd { d: u32, gamma: Gamma, keep: bool, x: Dtype }: Normalizes and rotates query and key heads, after
/// copying them if `keep`.
typedef struct qk_norm_fwd_params {
    address x;        ///< [tokens, row_heads, d] x, update: query and key heads, in place; the rest is untouched
    address raw;      ///< [tokens, query_heads + key_heads, d] x, write if keep: what they were
    address gamma;    ///< [2, d] x, read: of queries, of keys
    address position; ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    float eps;
    uint32_t tokens;
    uint32_t seq_len; ///< positions that there are
    uint32_t query_heads;
    uint32_t key_heads; ///< behind the query heads of a row
    uint32_t row_heads; ///< heads of a row, values' included
} qk_norm_fwd_params;

/// qk_norm.bwd { d: u32, gamma: Gamma, x: Dtype }: Computes the gradient of the heads as they were, and of both gammas.
typedef struct qk_norm_bwd_params {
    address dx;             ///< [tokens, row_heads, d] x, update: gradient of the rotated heads, replaced by that of `raw`
    address raw;            ///< [tokens, query_heads + key_heads, d] x, read: what the forward pass normalized
    address gamma;          ///< [2, d] x, read: of queries, of keys
    address position;       ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;            ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;            ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address dgamma_partial; ///< [ceil(tokens / rows), 2, d] f32, write
    float eps;
    uint32_t tokens;
    uint32_t seq_len; ///< positions that there are
    uint32_t query_heads;
    uint32_t key_heads; ///< behind the query heads of a row
    uint32_t row_heads; ///< heads of a row, values' included
    uint32_t rows;      ///< tokens that share one partial sum
    uint32_t reserved;
} qk_norm_bwd_params;

#endif
