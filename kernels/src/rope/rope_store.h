#ifndef PRECAST_ROPE_STORE_H
#define PRECAST_ROPE_STORE_H
#include "kv.h"

/// rope.store { d: u32, x: Dtype }: Rotates query heads of rows in place, and stores rotated keys and values in a pool.
/// bytes: rows * (8 + 4 * d + (2 * heads + 4 * kv_heads) * d * x.bytes())
///
/// Heads have the bits of `rope.fwd`. No two rows have the same slot and position.
typedef struct rope_store_params {
    address qkv;       ///< [rows, heads + 2 * kv_heads, d] x, update: in each row queries, then keys and values
    address slot;      ///< [rows] u32, read, slots(slots): the row's sequence in the pool, or IDLE_SLOT: it stays
    address position;  ///< [rows] u32, read, ids(seq_len): the row's, in its sequence
    address cos;       ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address sin;       ///< [seq_len, d / 2] f32, read, uniform(-1.0, 1.0)
    address keys;      ///< [slots, kv_heads, seq_len, d] x, update: those of other positions are untouched
    address values;    ///< [slots, kv_heads, seq_len, d] x, update: those of other positions are untouched
    uint32_t rows;
    uint32_t slots;    ///< sequences that the pool has room for
    uint32_t seq_len;  ///< positions of each
    uint32_t heads;    ///< query heads
    uint32_t kv_heads; ///< key and value heads
    uint32_t reserved;
} rope_store_params;

#endif
