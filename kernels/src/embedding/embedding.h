#ifndef PRECAST_EMBEDDING_H
#define PRECAST_EMBEDDING_H
#include "types.h"

/// embedding.fwd { h: u32, w: Format, x: Dtype }: Gathers rows of an embedding table.
/// bytes: tokens * (4 + w.bytes(h) + h * x.bytes())
typedef struct embedding_fwd_params {
    address ids;   ///< [tokens] u32, read, ids(vocab): each below `vocab`
    address table; ///< [vocab, h] w, read
    address y;     ///< [tokens, h] x, write
    uint32_t tokens;
    uint32_t vocab;
} embedding_fwd_params;

/// embedding.bwd { h: u32, x: Dtype }: Adds gradients into the rows they came from.
/// bytes: tokens * (8 + h * x.bytes()) + 2 * tokens.min(vocab) * h * 4
///
/// Rows of tokens that do not occur stay as they are, and so does that of `padding`: `padding_idx` of torch.nn.Embedding.
typedef struct embedding_bwd_params {
    address sorted_ids;       ///< [tokens] u32, read, sorted_ids(vocab): ascending
    address sorted_positions; ///< [tokens] u32, read, positions_of(sorted_ids): row of `dy` of each sorted id; ascending within an id
    address dy;               ///< [tokens, h] x, read
    address dtable;           ///< [vocab, h] f32, update
    uint32_t tokens;
    uint32_t vocab;
    uint32_t padding; ///< id whose row gets no gradient; none: a number from `vocab` up
    uint32_t reserved;
} embedding_bwd_params;

#endif
