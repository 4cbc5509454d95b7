#ifndef PRECAST_QK_NORM_ROW_H
#define PRECAST_QK_NORM_ROW_H
#include "types.h"

/// qk_norm.row_fwd { d: u32, gamma: Gamma, heads: u32, keep: bool, x: Dtype }: Normalizes a token's queries and its
/// keys, each over all heads, and rotates them, after copying them if `keep`.
typedef struct qk_norm_row_fwd_params {
    address x;        ///< [tokens, row_heads, d] x, update: query and key heads, in place; the rest is untouched
    address raw;      ///< [tokens, heads + key_heads, d] x, write if keep: what they were
    address gamma;    ///< [heads + key_heads, d] x, read: of queries, of keys
    address position; ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    float eps;
    uint32_t tokens;
    uint32_t seq_len;   ///< positions that there are
    uint32_t key_heads; ///< behind the query heads of a row, and as many at most
    uint32_t row_heads; ///< heads of a row, values' included
    uint32_t reserved;
} qk_norm_row_fwd_params;

/// qk_norm.row_bwd { d: u32, gamma: Gamma, heads: u32, x: Dtype }: Computes the gradient of the queries and keys as
/// they were, and of both gammas.
typedef struct qk_norm_row_bwd_params {
    address dx;             ///< [tokens, row_heads, d] x, update: gradient of rotated heads, replaced by `raw`'s
    address raw;            ///< [tokens, heads + key_heads, d] x, read: what the forward pass normalized
    address gamma;          ///< [heads + key_heads, d] x, read: of queries, of keys
    address position;       ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;            ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;            ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address dgamma_partial; ///< [ceil(tokens / rows), heads + key_heads, d] f32, write
    float eps;
    uint32_t tokens;
    uint32_t seq_len;   ///< positions that there are
    uint32_t key_heads; ///< behind the query heads of a row, and as many at most
    uint32_t row_heads; ///< heads of a row, values' included
    uint32_t rows;      ///< tokens that share one partial sum
} qk_norm_row_bwd_params;

/// qk_norm.row_dgrad { d: u32, gamma: Gamma, heads: u32, x: Dtype }: Computes the gradient of the queries and keys
/// where the gammas do not train.
typedef struct qk_norm_row_dgrad_params {
    address dx;       ///< [tokens, row_heads, d] x, update: gradient of the rotated heads, replaced by that of `raw`
    address raw;      ///< [tokens, heads + key_heads, d] x, read: what the forward pass normalized
    address gamma;    ///< [heads + key_heads, d] x, read: of queries, of keys
    address position; ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;      ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    float eps;
    uint32_t tokens;
    uint32_t seq_len;   ///< positions that there are
    uint32_t key_heads; ///< behind the query heads of a row, and as many at most
    uint32_t row_heads; ///< heads of a row, values' included
    uint32_t reserved;
} qk_norm_row_dgrad_params;

#endif
