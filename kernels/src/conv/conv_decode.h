#ifndef PRECAST_CONV_DECODE_H
#define PRECAST_CONV_DECODE_H
#include "conv.h"
#include "kv.h"

/// conv.decode { x: Dtype }: Convolves rows with the tokens before them in their slots, and applies SiLU.
/// bytes: rows * (8 + (2 * 3 + 2) * channels * x.bytes())
///
/// A row has the bits of that row of `conv.fwd`.
typedef struct conv_decode_params {
    address x;        ///< [rows, row_columns] x, read: channels, and what else there is in a row
    address weight;   ///< [channels, 4] x, read: of the third token before, up to the token itself
    address slot;     ///< [rows] u32, read, runs(slots, seq_len): the row's sequence in the pool, or IDLE_SLOT
    address position; ///< [rows] u32, read, steps(slot, seq_len, 64): the row's, in its sequence
    address history;  ///< [slots, 3, channels] x, update: the last tokens of a sequence; other slots are untouched
    address y;        ///< [rows, channels] x, write: zeros for an idle slot
    uint32_t rows;
    uint32_t slots;   ///< sequences that the pool has room for
    uint32_t seq_len; ///< positions of each
    uint32_t channels;
    uint32_t row_columns;
    uint32_t reserved;
} conv_decode_params;

#endif
