#ifndef PRECAST_SAMPLE_SCORE_H
#define PRECAST_SAMPLE_SCORE_H
#include "step.h"

/// sample.score { x: Dtype }: Computes log-probabilities of given tokens, with the bits that `sample` has of tokens that it draws.
typedef struct sample_score_params {
    address logits;   ///< [rows, vocab] x, read, logits(vocab)
    address token;    ///< [rows] u32, read, targets(vocab): MASKED_TOKEN of a row that is not read
    address log_prob; ///< [rows] f32, write: of the token, at temperature 1; 0 if it is masked or a logit is not finite
    address lse;      ///< [rows] f32, write: log-sum-exp of all logits; 0 likewise
    uint32_t rows;
    uint32_t vocab;   ///< at most 2^18
} sample_score_params;

#endif
