#ifndef PRECAST_CONV_H
#define PRECAST_CONV_H
#include "types.h"

/* Tokens that a convolution reads. */
#define CONV_TAPS 4

/// conv.fwd { x: Dtype }: Convolves each channel causally within its sequence, over 4 tokens, and applies SiLU.
typedef struct conv_fwd_params {
    address x;        ///< [tokens, row_columns] x, read: channels, and what else there is in a row
    address weight;   ///< [channels, 4] x, read: of the third token before, up to the token itself
    address position; ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address y;        ///< [tokens, channels] x, write
    uint32_t tokens;
    uint32_t seq_len; ///< positions that there are
    uint32_t channels;
    uint32_t row_columns;
} conv_fwd_params;

/// conv.bwd { x: Dtype }: Computes the gradient of the channels, and sums that of the weight over `rows` tokens.
typedef struct conv_bwd_params {
    address x;               ///< [tokens, row_columns] x, read: channels, and what else there is in a row
    address weight;          ///< [channels, 4] x, read: of the third token before, up to the token itself
    address position;        ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address dy;              ///< [tokens, channels] x, read
    address dx;              ///< [tokens, row_columns] x, update: gradient of the channels; the rest is untouched
    address dweight_partial; ///< [ceil(tokens / rows), channels, 4] f32, write
    uint32_t tokens;
    uint32_t seq_len; ///< positions that there are
    uint32_t channels;
    uint32_t row_columns;
    uint32_t rows; ///< tokens that share one partial sum
    uint32_t reserved;
} conv_bwd_params;

/// conv.dgrad { x: Dtype }: Computes the gradient of the channels where the weight does not train.
typedef struct conv_dgrad_params {
    address x;        ///< [tokens, row_columns] x, read: channels, and what else there is in a row
    address weight;   ///< [channels, 4] x, read: of the third token before, up to the token itself
    address position; ///< [tokens] u32, read, ids(seq_len): of each token in its sequence
    address dy;       ///< [tokens, channels] x, read
    address dx;       ///< [tokens, row_columns] x, update: gradient of the channels; the rest is untouched
    uint32_t tokens;
    uint32_t seq_len; ///< positions that there are
    uint32_t channels;
    uint32_t row_columns;
} conv_dgrad_params;

#endif
