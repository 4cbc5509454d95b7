#ifndef PRECAST_ATTENTION_H
#define PRECAST_ATTENTION_H
#include "types.h"

/// attention.fwd { d: u32, x: Dtype }: Attends, and keeps the log-sum-exp of the scores.
/// flops: 4 * d * (seq_len * (seq_len + 1) / 2) * batch * heads
typedef struct attention_fwd_params {
    address qkv;       ///< [batch, seq_len, heads + 2 * kv_heads, d] x, read: in each row all query heads, then keys, then values
    address o;         ///< [batch, seq_len, heads, d] x, write
    address lse;       ///< [batch, heads, seq_len] f32, write: log-sum-exp of the scaled scores
    uint32_t batch;    ///< sequences
    uint32_t seq_len;  ///< tokens in each
    uint32_t heads;    ///< query heads
    uint32_t kv_heads; ///< key and value heads
    float scale;       ///< factor of the scores
    uint32_t reserved;
} attention_fwd_params;

/// attention.delta { d: u32, x: Dtype }: Sums output times output gradient over each row.
typedef struct attention_delta_params {
    address o;        ///< [batch, seq_len, heads, d] x, read
    address d_o;      ///< [batch, seq_len, heads, d] x, read
    address delta;    ///< [batch, heads, seq_len] f32, write
    uint32_t batch;   ///< sequences
    uint32_t seq_len; ///< tokens in each
    uint32_t heads;   ///< query heads
    uint32_t reserved;
} attention_delta_params;

/// attention.bwd { d: u32, x: Dtype }: Computes the gradients of queries, keys and values.
/// flops: 10 * d * (seq_len * (seq_len + 1) / 2) * batch * heads
///
/// Checks put `lse` above any score, so that probabilities stay below one as in a real backward pass.
typedef struct attention_bwd_params {
    address qkv;       ///< [batch, seq_len, heads + 2 * kv_heads, d] x, read
    address d_o;       ///< [batch, seq_len, heads, d] x, read
    address lse;       ///< [batch, heads, seq_len] f32, read, uniform(4.0, 6.0)
    address delta;     ///< [batch, heads, seq_len] f32, read: row sums of `o * d_o`
    address dqkv;      ///< [batch, seq_len, heads + 2 * kv_heads, d] x, write: laid out as `qkv`
    uint32_t batch;    ///< sequences
    uint32_t seq_len;  ///< tokens in each
    uint32_t heads;    ///< query heads
    uint32_t kv_heads; ///< key and value heads
    float scale;       ///< factor of the scores
    uint32_t reserved;
} attention_bwd_params;

#endif
