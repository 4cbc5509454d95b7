#ifndef PRECAST_DELTA_RULE_H
#define PRECAST_DELTA_RULE_H
#include "types.h"

/* Tokens of a chunk, and elements of a head. */
#define DELTA_CHUNK 64
#define DELTA_HEAD 128

/// delta_rule.solve { x: Dtype }: Computes what a chunk of 64 tokens takes of itself alone: its decays, step sizes,
/// scales of queries and keys, the inverse of its triangular system, and its scores.
/// flops: 4 * 64 * 128 * tokens * value_heads
typedef struct delta_rule_solve_params {
    address qkv;       ///< [tokens, 2 * key_heads + value_heads, 128] x, read: queries of a row, then keys, then values
    address gates;     ///< [tokens, gate_columns] x, read: `b` of value heads from column `b_column`, then `a`
    address rates;     ///< [2, value_heads] f32, read: `a_log`, then `dt_bias`
    address sequences; ///< [count, 2] u32, read, sequences(tokens, seq_len): first place and length, longest first
    address decay;     ///< [tokens, value_heads] f32, write: log of all decays in the chunk up to the token's own
    address beta;      ///< [tokens, value_heads] f32, write: step size
    address scale;     ///< [tokens, 2, key_heads] f32, write: factors that normalize queries and keys
    address inverse;   ///< [tokens, value_heads, 64] x, write: rows of (I + A)^-1, zeros behind the diagonal
    address scores;    ///< [tokens, value_heads, 64] x, write: rows of decayed scores, zeros behind the diagonal
    uint32_t tokens;
    uint32_t count;        ///< sequences at most; those behind the last have no tokens
    uint32_t seq_len;      ///< tokens of a sequence at most
    uint32_t key_heads;    ///< query and key heads
    uint32_t value_heads;  ///< a multiple of them
    uint32_t gate_columns; ///< elements of a row of `gates`
    uint32_t b_column;
    uint32_t reserved;
} delta_rule_solve_params;

/// delta_rule.fwd { keep: bool, x: Dtype }: Applies the states before each chunk and its own tokens, and moves the
/// state from chunk to chunk.
/// flops: (6 * 128 + 4 * 64) * 128 * tokens * value_heads
typedef struct delta_rule_fwd_params {
    address qkv;       ///< [tokens, 2 * key_heads + value_heads, 128] x, read: queries of a row, then keys, then values
    address sequences; ///< [count, 2] u32, read, sequences(tokens, seq_len): first place and length, longest first
    address decay;     ///< [tokens, value_heads] f32, read, uniform(-2.0, 0.0)
    address beta;      ///< [tokens, value_heads] f32, read, uniform(0.0, 1.0)
    address scale;     ///< [tokens, 2, key_heads] f32, read, uniform(0.05, 0.1)
    address inverse;   ///< [tokens, value_heads, 64] x, read, normal(0.1)
    address scores;    ///< [tokens, value_heads, 64] x, read, normal(0.1)
    address o;         ///< [tokens, value_heads, 128] x, write
    address v_new;     ///< [tokens, value_heads, 128] x, write if keep: what is written to the state
    address states;    ///< [ceil(tokens / 64), value_heads, 128, 128] x, part if keep: behind full chunks but the last
    uint32_t tokens;
    uint32_t count;       ///< sequences at most; those behind the last have no tokens
    uint32_t seq_len;     ///< tokens of a sequence at most
    uint32_t key_heads;   ///< query and key heads
    uint32_t value_heads; ///< a multiple of them
    uint32_t reserved;
} delta_rule_fwd_params;

/// delta_rule.state_bwd { x: Dtype }: Computes the gradients of the states, and of what is written to them.
/// flops: (6 * 128 + 4 * 64) * 128 * tokens * value_heads
typedef struct delta_rule_state_bwd_params {
    address qkv;       ///< [tokens, 2 * key_heads + value_heads, 128] x, read: queries of a row, then keys, then values
    address sequences; ///< [count, 2] u32, read, sequences(tokens, seq_len): first place and length, longest first
    address decay;     ///< [tokens, value_heads] f32, read, uniform(-2.0, 0.0)
    address beta;      ///< [tokens, value_heads] f32, read, uniform(0.0, 1.0)
    address scale;     ///< [tokens, 2, key_heads] f32, read, uniform(0.05, 0.1)
    address inverse;   ///< [tokens, value_heads, 64] x, read, normal(0.1)
    address scores;    ///< [tokens, value_heads, 64] x, read, normal(0.1)
    address d_o;       ///< [tokens, value_heads, 128] x, read
    address dvb;       ///< [tokens, value_heads, 128] x, write: gradient of beta * v
    address dstates;   ///< [ceil(tokens / 64), value_heads, 128, 128] x, part: of `states` of the forward pass
    uint32_t tokens;
    uint32_t count;       ///< sequences at most; those behind the last have no tokens
    uint32_t seq_len;     ///< tokens of a sequence at most
    uint32_t key_heads;   ///< query and key heads
    uint32_t value_heads; ///< a multiple of them
    uint32_t reserved;
} delta_rule_state_bwd_params;

/// delta_rule.bwd { x: Dtype }: Computes the gradients of queries, keys, values and gates, and sums those of the
/// decay's parameters over each chunk.
/// flops: (6 * 128 + 12 * 64) * 128 * tokens * value_heads
typedef struct delta_rule_bwd_params {
    address qkv;       ///< [tokens, 2 * key_heads + value_heads, 128] x, read: queries of a row, then keys, then values
    address gates;     ///< [tokens, gate_columns] x, read: `b` of value heads from column `b_column`, then `a`
    address rates;     ///< [2, value_heads] f32, read: `a_log`, then `dt_bias`
    address sequences; ///< [count, 2] u32, read, sequences(tokens, seq_len): first place and length, longest first
    address decay;     ///< [tokens, value_heads] f32, read, uniform(-2.0, 0.0)
    address beta;      ///< [tokens, value_heads] f32, read, uniform(0.1, 1.0)
    address scale;     ///< [tokens, 2, key_heads] f32, read, uniform(0.05, 0.1)
    address scores;    ///< [tokens, value_heads, 64] x, read, normal(0.1)
    address v_new;     ///< [tokens, value_heads, 128] x, read
    address states;    ///< [ceil(tokens / 64), value_heads, 128, 128] x, read
    address d_o;       ///< [tokens, value_heads, 128] x, read
    address dvb;       ///< [tokens, value_heads, 128] x, read: gradient of beta * v
    address dstates;   ///< [ceil(tokens / 64), value_heads, 128, 128] x, read
    address dqkv;      ///< [tokens, 2 * key_heads + value_heads, 128] x, write: laid out as `qkv`
    address dgates;    ///< [tokens, gate_columns] x, update: gradients of `b` and `a`; the rest is untouched
    address partial;   ///< [chunks, 2, value_heads] f32, write: of `a_log` and `dt_bias`, zeros behind the last chunk
    uint32_t tokens;
    uint32_t count;        ///< sequences at most; those behind the last have no tokens
    uint32_t seq_len;      ///< tokens of a sequence at most
    uint32_t key_heads;    ///< query and key heads
    uint32_t value_heads;  ///< a multiple of them
    uint32_t gate_columns; ///< elements of a row of `gates`
    uint32_t b_column;
    uint32_t chunks; ///< of all sequences at most: tokens / 64 + count
} delta_rule_bwd_params;

#endif
