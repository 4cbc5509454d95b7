#ifndef PRECAST_QK_NORM_GATED_H
#define PRECAST_QK_NORM_GATED_H
#include "types.h"

/// qk_norm.gated_fwd { d: u32, gamma: Gamma, rotary: u32, x: Dtype }: Takes query, key and value heads out of rows in
/// which a gate follows each query; normalizes queries and keys, and rotates their first `rotary` elements.
typedef struct qk_norm_gated_fwd_params {
    address packed;   ///< [tokens, 2 * query_heads + 2 * key_heads, d] x, read: query and gate a head, keys, values
    address gamma;    ///< [2, d] x, read: of queries, of keys
    address position; ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;      ///< [seq_len, rotary / 2] f32, read, uniform(-1.0, 1.0)
    address sin;      ///< [seq_len, rotary / 2] f32, read, uniform(-1.0, 1.0)
    address qkv;      ///< [tokens, query_heads + 2 * key_heads, d] x, write
    float eps;
    uint32_t tokens;
    uint32_t seq_len; ///< positions that there are
    uint32_t query_heads;
    uint32_t key_heads; ///< and as many value heads
    uint32_t reserved;
} qk_norm_gated_fwd_params;

/// qk_norm.gated_bwd { d: u32, gamma: Gamma, rotary: u32, x: Dtype }: Computes the gradient of queries, keys and values
/// as they were, and sums that of both gammas over `rows` tokens.
typedef struct qk_norm_gated_bwd_params {
    address packed;         ///< [tokens, 2 * query_heads + 2 * key_heads, d] x, read: what the forward pass took
    address gamma;          ///< [2, d] x, read: of queries, of keys
    address position;       ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;            ///< [seq_len, rotary / 2] f32, read, uniform(-1.0, 1.0)
    address sin;            ///< [seq_len, rotary / 2] f32, read, uniform(-1.0, 1.0)
    address dqkv;           ///< [tokens, query_heads + 2 * key_heads, d] x, read
    address dpacked;        ///< [tokens, 2 * query_heads + 2 * key_heads, d] x, update: gates are untouched
    address dgamma_partial; ///< [ceil(tokens / rows), 2, d] f32, write
    float eps;
    uint32_t tokens;
    uint32_t seq_len; ///< positions that there are
    uint32_t query_heads;
    uint32_t key_heads; ///< and as many value heads
    uint32_t rows;      ///< tokens that share one partial sum
} qk_norm_gated_bwd_params;

/// qk_norm.gated_dgrad { d: u32, gamma: Gamma, rotary: u32, x: Dtype }: Computes the gradient of queries, keys and
/// values as they were, where the gammas do not train.
typedef struct qk_norm_gated_dgrad_params {
    address packed;   ///< [tokens, 2 * query_heads + 2 * key_heads, d] x, read: what the forward pass took
    address gamma;    ///< [2, d] x, read: of queries, of keys
    address position; ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address cos;      ///< [seq_len, rotary / 2] f32, read, uniform(-1.0, 1.0)
    address sin;      ///< [seq_len, rotary / 2] f32, read, uniform(-1.0, 1.0)
    address dqkv;     ///< [tokens, query_heads + 2 * key_heads, d] x, read
    address dpacked;  ///< [tokens, 2 * query_heads + 2 * key_heads, d] x, update: gates are untouched
    float eps;
    uint32_t tokens;
    uint32_t seq_len; ///< positions that there are
    uint32_t query_heads;
    uint32_t key_heads; ///< and as many value heads
    uint32_t reserved;
} qk_norm_gated_dgrad_params;

#endif
