#ifndef PRECAST_SAMPLE_H
#define PRECAST_SAMPLE_H
#include "kept.h"
#include "types.h"

/// sample { x: Dtype }: Draws a token of each row of logits.
typedef struct sample_params {
    address logits;     ///< [rows, vocab] x, read, logits(vocab)
    address sequence;   ///< [rows, 2] u32, read, ids(4294967295): number of the row's sequence, its lower half first
    address position;   ///< [rows] u32, read, ids(4294967295): the row's, in its sequence
    address token;      ///< [rows] u32, write: NO_TOKEN if a logit is not finite
    address log_prob;   ///< [rows] f32, write: of the token, at temperature 1; 0 if a logit is not finite
    address lse;        ///< [rows] f32, write: log-sum-exp of all logits; 0 if one is not finite
    uint64_t seed;
    uint32_t rows;
    uint32_t vocab;     ///< at most 2^18
    float temperature;  ///< 0: the token of the largest logit
    uint32_t top_k;     ///< draws from as many tokens, the most probable ones; 0: from all
    float top_p;        ///< draws from the fewest tokens that have this share of the probability; 1: from all
    uint32_t reserved;
} sample_params;

#endif
