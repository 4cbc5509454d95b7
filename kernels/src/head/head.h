#ifndef PRECAST_HEAD_H
#define PRECAST_HEAD_H
#include "step.h"

/* A target of MASKED_TOKEN counts nowhere: what is a token's is 0 there. Losses are in nats. */

/// head.distill { reverse: bool, x: Dtype }: Computes losses of a chunk, and the gradient of its student logits in place. The
/// divergence is Kullback-Leibler's, of the student from the teacher or in reverse.
typedef struct head_distill_params {
    address teacher;   ///< [tokens, vocab] x, read: logits
    address student;   ///< [tokens, vocab] x, update: logits, replaced by their gradient
    address targets;   ///< [tokens] u32, read, targets(vocab)
    address micro;     ///< micro_scalars, read
    address kd;        ///< [tokens] f32, write: the divergence at `temperature`
    address ce;        ///< [tokens] f32, write: cross entropy at temperature 1
    uint32_t tokens;
    uint32_t vocab;
    float alpha;       ///< share of the divergence, 0 to 1
    float temperature;
} head_distill_params;

/// head.jsd { x: Dtype }: Computes losses like `head.distill`, by the divergences of teacher and student from their mixture.
typedef struct head_jsd_params {
    address teacher;   ///< [tokens, vocab] x, read: logits
    address student;   ///< [tokens, vocab] x, update: logits, replaced by their gradient
    address targets;   ///< [tokens] u32, read, targets(vocab)
    address micro;     ///< micro_scalars, read
    address kd;        ///< [tokens] f32, write: the divergence at `temperature`
    address ce;        ///< [tokens] f32, write: cross entropy at temperature 1
    uint32_t tokens;
    uint32_t vocab;
    float alpha;       ///< share of the divergence, 0 to 1
    float temperature;
    float beta;        ///< weight of the teacher in the mixture, between 0 and 1
    uint32_t reserved;
} head_jsd_params;

/// head.ce { x: Dtype }: Computes cross entropies of a chunk, and the gradient of its logits in place.
typedef struct head_ce_params {
    address logits;  ///< [tokens, vocab] x, update: replaced by their gradient
    address targets; ///< [tokens] u32, read, targets(vocab)
    address micro;   ///< micro_scalars, read
    address ce;      ///< [tokens] f32, write: cross entropy
    uint32_t tokens;
    uint32_t vocab;
} head_ce_params;

/// head.nll { x: Dtype }: Computes the negative log likelihood of a chunk.
typedef struct head_nll_params {
    address logits;  ///< [tokens, vocab] x, read
    address targets; ///< [tokens] u32, read, targets(vocab)
    address nll;     ///< [tokens] f32, write
    uint32_t tokens;
    uint32_t vocab;
} head_nll_params;

/// head.compare { x: Dtype }: Compares two models' predictions of a chunk.
typedef struct head_compare_params {
    address reference;     ///< [tokens, vocab] x, read: logits that others are compared with
    address logits;        ///< [tokens, vocab] x, read
    address targets;       ///< [tokens] u32, read, targets(vocab)
    address kl;            ///< [tokens] f32, write: KL(reference || logits)
    address agrees;        ///< [tokens] f32, write: 1 where both have their largest logit at the same token
    address reference_nll; ///< [tokens] f32, write
    address nll;           ///< [tokens] f32, write
    uint32_t tokens;
    uint32_t vocab;
} head_compare_params;

/// head.metrics { kd: bool }: Adds mean losses of a micro-batch up over the step; that of the teacher with `kd`.
typedef struct head_metrics_params {
    address kd;      ///< [tokens] f32, read if kd
    address ce;      ///< [tokens] f32, read
    address micro;   ///< micro_scalars, read
    address metrics; ///< step_metrics, update: `kd_loss` and `ce_loss`, set in the first micro-batch, added to later
    uint32_t tokens;
    uint32_t reserved;
} head_metrics_params;

#endif
