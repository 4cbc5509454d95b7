#ifndef PRECAST_BITS_H
#define PRECAST_BITS_H
#include "kv.h"

/// bits.compare { x: Dtype }: Counts elements of rows whose bits are not those expected at their places in sequences.
/// bytes: rows * (16 + 2 * vocab * x.bytes())
///
/// NaN and zeros of two signs compare as bits. No two rows have the same slot and position.
typedef struct bits_compare_params {
    address found;     ///< [rows, vocab] x, read, few()
    address expected;  ///< [slots, seq_len, vocab] x, read, few()
    address slot;      ///< [rows] u32, read, slots(slots): the row's sequence, or IDLE_SLOT: nothing is compared
    address position;  ///< [rows] u32, read, ids(seq_len): the row's, in its sequence
    address compared;  ///< [slots, seq_len] u32, update, ids(64): elements compared; those of other places are untouched
    address differing; ///< [slots, seq_len] u32, update, ids(64): elements of these whose bits differ
    uint32_t rows;
    uint32_t slots;    ///< sequences that are expected
    uint32_t seq_len;  ///< positions of each
    uint32_t vocab;
} bits_compare_params;

#endif
