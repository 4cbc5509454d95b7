#ifndef PRECAST_SAMPLE_TOP_H
#define PRECAST_SAMPLE_TOP_H
#include "kept.h"
#include "types.h"

/// sample.top { x: Dtype }: Computes log-probabilities of the most likely tokens of each row, and of the remaining tokens combined.
typedef struct sample_top_params {
    address logits;    ///< [rows, vocab] x, read
    address ids;       ///< [rows, keep] u32, write: the most likely token first; of equal ones the smallest
    address log_probs; ///< [rows, keep + 1] f32, write: at `temperature`, nats; the last entry is for the remaining tokens combined
    uint32_t rows;
    uint32_t vocab;
    uint32_t keep;     ///< below `vocab`, at most MOST_KEPT
    float temperature;
} sample_top_params;

#endif
