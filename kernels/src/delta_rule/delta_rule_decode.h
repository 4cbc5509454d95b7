#ifndef PRECAST_DELTA_RULE_DECODE_H
#define PRECAST_DELTA_RULE_DECODE_H
#include "delta_rule.h"
#include "kv.h"

/* Rows of a chunk that tensor cores compute at a time. */
#define DELTA_BLOCK 16

/// delta_rule.decode { x: Dtype }: Computes rows from the states and the chunks of their slots, and moves the state of
/// a slot whose chunk is full.
/// bytes: rows * value_heads * (128 * 128 * x.bytes() + 32 * (2 * 128 * x.bytes() + 4 * 64))
///
/// The row at a position has the bits of that row of `delta_rule.fwd`. A run that begins within a chunk ends there at
/// the latest.
typedef struct delta_rule_decode_params {
    address qkv;      ///< [rows, 2 * key_heads + value_heads, 128] x, read: queries of a row, then keys, then values
    address gates;    ///< [rows, gate_columns] x, read: `b` of value heads from column `b_column`, then `a`
    address rates;    ///< [2, value_heads] f32, read: `a_log`, then `dt_bias`
    address slot;     ///< [rows] u32, read, runs(slots, seq_len): the row's sequence in the pool, or IDLE_SLOT
    address position; ///< [rows] u32, read, steps(slot, seq_len, 64): the row's, in its sequence
    address states;   ///< [slots, value_heads, 128, 128] f32, update: before the chunk; none before the first
    address rounded;  ///< [slots, value_heads, 128, 128] x, update: these in x, in the order of fragments
    address keys;     ///< [slots, key_heads, 64, 128] x, update: of the chunk so far, as all that follows
    address scale;    ///< [slots, key_heads, 64] f32, update, uniform(0.05, 0.1): factors that normalize keys
    address decay;    ///< [slots, value_heads, 64] f32, update, uniform(-2.0, 0.0): log of all decays in the chunk
    address inverse;  ///< [slots, value_heads, 64, 64] f32, update, uniform(-0.1, 0.1): rows of (I + A)^-1
    address change;   ///< [slots, value_heads, 64, 128] x, update: beta (v - what keys read of the state)
    address o;        ///< [rows, value_heads, 128] x, write: zeros for an idle slot
    uint32_t rows;
    uint32_t slots;        ///< sequences that the pool has room for
    uint32_t seq_len;      ///< positions of each
    uint32_t key_heads;    ///< query and key heads
    uint32_t value_heads;  ///< a multiple of them
    uint32_t gate_columns; ///< elements of a row of `gates`
    uint32_t b_column;
    uint32_t reserved;
} delta_rule_decode_params;

#endif
