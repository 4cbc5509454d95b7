#ifndef PRECAST_ATTENTION_DECODE_H
#define PRECAST_ATTENTION_DECODE_H
#include "kv.h"

/// attention.decode { d: u32, window: Option<u32>, x: Dtype }: Attends from rows to the keys of their slots up to their
/// positions.
/// bytes: rows * (8 + (2 * heads + kv_heads * seen()) * d * x.bytes())
///
/// The row at a position has the bits of that row of `attention.fwd`. Its own key and value are in the pool.
typedef struct attention_decode_params {
    address qkv;       ///< [rows, heads + 2 * kv_heads, d] x, read: in each row all query heads; keys and values are not read
    address slot;      ///< [rows] u32, read, slots(slots): the row's sequence in the pool, or IDLE_SLOT
    address position;  ///< [rows] u32, read, ids(seq_len): the row's, in its sequence
    address keys;      ///< [slots, kv_heads, seq_len, d] x, read
    address values;    ///< [slots, kv_heads, seq_len, d] x, read
    address o;         ///< [rows, heads, d] x, write: zeros for an idle slot
    uint32_t rows;
    uint32_t slots;    ///< sequences that the pool has room for
    uint32_t seq_len;  ///< positions of each
    uint32_t heads;    ///< query heads
    uint32_t kv_heads; ///< key and value heads
    float scale;       ///< factor of the scores
    uint32_t is_step;  ///< 1 if no two rows share a slot: earlier keys are there before the launch in front ends
    uint32_t reserved;
} attention_decode_params;

#endif
