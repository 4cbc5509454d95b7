#ifndef PRECAST_SAMPLE_ADVANCE_H
#define PRECAST_SAMPLE_ADVANCE_H
#include "kv.h"
#include "sample.h"

/// sample.advance {}: Moves rows on to the tokens that were drawn for them.
/// bytes: rows * 44
///
/// A row whose sequence ends is idle from then on, and its last token and position stay. So is a row for which no token was drawn;
/// its `end` says so.
typedef struct sample_advance_params {
    address token;    ///< [rows] u32, read, targets(64): drawn after the row's own token, or NO_TOKEN
    address log_prob; ///< [rows] f32, read: of the token
    address lse;      ///< [rows] f32, read: log-sum-exp of the logits that it was drawn from
    address end;      ///< [rows] u32, update, ids(seq_len): tokens that the row's sequence has at most; NO_TOKEN once none was drawn
    address stop;     ///< [stops] u32, read, ids(64): tokens that end a sequence
    address slot;     ///< [rows] u32, update, slots(slots): the row's sequence, or IDLE_SLOT
    address position; ///< [rows] u32, update, ids(seq_len): the row's, in its sequence
    address id;       ///< [rows] u32, update, ids(64): the row's token
    address tokens;   ///< [slots, seq_len] u32, update, ids(64): tokens of the sequences; those of other positions are untouched
    address log_probs; ///< [slots, seq_len] f32, update: of these tokens
    address lses;     ///< [slots, seq_len] f32, update: of the logits that they were drawn from
    uint32_t rows;
    uint32_t slots;   ///< sequences that there is room for
    uint32_t seq_len; ///< positions of each
    uint32_t stops;
} sample_advance_params;

#endif
