#ifndef PRECAST_ATTENTION_H
#define PRECAST_ATTENTION_H
#include "types.h"

/// attention.fwd { d: u32, window: Option<u32>, x: Dtype }: Attends, and keeps the log-sum-exp of the scores.
/// flops: 4 * d * (seen() * tokens / 2) * heads
///
/// Each token is one of a sequence, and sees no other: its own key and those before it, `window` of them at most.
/// A launch of full sequences has so many operations; others have fewer.
typedef struct attention_fwd_params {
    address qkv;       ///< [tokens, heads + 2 * kv_heads, d] x, read: queries of a row, then keys, then values
    address sequences; ///< [count, 2] u32, read, sequences(tokens, seq_len): first place and length, longest first
    address o;         ///< [tokens, heads, d] x, write
    address lse;       ///< [heads, tokens] f32, write: log-sum-exp of the scaled scores
    uint32_t tokens;
    uint32_t count;    ///< sequences at most; those behind the last have no tokens
    uint32_t seq_len;  ///< tokens of a sequence at most
    uint32_t heads;    ///< query heads
    uint32_t kv_heads; ///< key and value heads
    float scale;       ///< factor of the scores
} attention_fwd_params;

/// attention.delta { d: u32, x: Dtype }: Sums output times output gradient over each row.
typedef struct attention_delta_params {
    address o;     ///< [tokens, heads, d] x, read
    address d_o;   ///< [tokens, heads, d] x, read
    address delta; ///< [heads, tokens] f32, write
    uint32_t tokens;
    uint32_t heads; ///< query heads
} attention_delta_params;

/// attention.bwd { d: u32, window: Option<u32>, x: Dtype }: Computes the gradients of queries, keys and values.
/// flops: 10 * d * (seen() * tokens / 2) * heads
///
/// Checks put `lse` above any score, so that probabilities stay below one as in a real backward pass.
typedef struct attention_bwd_params {
    address qkv;       ///< [tokens, heads + 2 * kv_heads, d] x, read
    address sequences; ///< [count, 2] u32, read, sequences(tokens, seq_len): first place and length, longest first
    address d_o;       ///< [tokens, heads, d] x, read
    address lse;       ///< [heads, tokens] f32, read, uniform(4.0, 6.0)
    address delta;     ///< [heads, tokens] f32, read: row sums of `o * d_o`
    address dqkv;      ///< [tokens, heads + 2 * kv_heads, d] x, write: laid out as `qkv`
    uint32_t tokens;
    uint32_t count;    ///< sequences at most; those behind the last have no tokens
    uint32_t seq_len;  ///< tokens of a sequence at most
    uint32_t heads;    ///< query heads
    uint32_t kv_heads; ///< key and value heads
    float scale;       ///< factor of the scores
} attention_bwd_params;

#endif
