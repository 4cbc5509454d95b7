#ifndef PRECAST_KV_H
#define PRECAST_KV_H
#include "types.h"

/* The slot of a row that has no sequence: it stores nothing, and attends to nothing. */
#define IDLE_SLOT 0xFFFFFFFFu

/// kv.store { d: u32, x: Dtype }: Stores keys and values of rows in a pool.
/// bytes: rows * (8 + 4 * kv_heads * d * x.bytes())
///
/// No two rows have the same slot and position.
typedef struct kv_store_params {
    address qkv;       ///< [rows, heads + 2 * kv_heads, d] x, read: in each row all query heads, then keys, then values
    address slot;      ///< [rows] u32, read, slots(slots): the row's sequence in the pool, or IDLE_SLOT
    address position;  ///< [rows] u32, read, ids(seq_len): the row's, in its sequence
    address keys;      ///< [slots, kv_heads, seq_len, d] x, update: those of other positions are untouched
    address values;    ///< [slots, kv_heads, seq_len, d] x, update: those of other positions are untouched
    uint32_t rows;
    uint32_t slots;    ///< sequences that the pool has room for
    uint32_t seq_len;  ///< positions of each
    uint32_t heads;    ///< query heads
    uint32_t kv_heads; ///< key and value heads
    uint32_t reserved;
} kv_store_params;

#endif
