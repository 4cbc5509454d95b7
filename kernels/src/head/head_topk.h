#ifndef PRECAST_HEAD_TOPK_H
#define PRECAST_HEAD_TOPK_H
#include "kept.h"
#include "step.h"

/// head.topk { x: Dtype }: Computes losses like `head.distill` and `head.jsd`, by the divergence over some
/// tokens whose teacher probabilities are known, and the combined rest.
typedef struct head_topk_params {
    address ids;       ///< [tokens, keep] u32, read, distinct(keep, vocab): the known tokens, then NO_TOKEN
    address log_probs; ///< [tokens, keep + 1] f32, read, log_probs(keep + 1): the teacher's at `temperature`, nats; the last entry is for the remaining tokens combined
    address student;   ///< [tokens, vocab] x, update: logits, replaced by their gradient
    address targets;   ///< [tokens] u32, read, targets(vocab)
    address micro;     ///< micro_scalars, read
    address kd;        ///< [tokens] f32, write: the divergence at `temperature`
    address ce;        ///< [tokens] f32, write: cross entropy at temperature 1
    uint32_t tokens;
    uint32_t vocab;
    uint32_t keep;     ///< below `vocab`, at most MOST_KEPT
    float alpha;       ///< share of the divergence, 0 to 1
    float temperature;
    float beta;        ///< weight of the teacher in the mixture; 0: the KL of the student from the teacher, 1: in reverse
} head_topk_params;

#endif
