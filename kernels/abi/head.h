#ifndef PRECAST_HEAD_H
#define PRECAST_HEAD_H
#include "step.h"

typedef struct head_distill_params {
    address teacher; /* [tokens, vocab] logits */
    address student; /* [tokens, vocab] logits, replaced by their gradient */
    address targets; /* [tokens] u32, MASKED_TOKEN counts nowhere */
    address micro;   /* micro_scalars */
    address kd;      /* [tokens] f32: the divergence at temperature, 0 where masked */
    address ce;      /* [tokens] f32: cross entropy at temperature 1, 0 where masked */
    uint32_t tokens;
    uint32_t vocab;
    float alpha;
    float temperature;
} head_distill_params;

typedef struct head_jsd_params {
    address teacher; /* [tokens, vocab] logits */
    address student; /* [tokens, vocab] logits, replaced by their gradient */
    address targets; /* [tokens] u32, MASKED_TOKEN counts nowhere */
    address micro;   /* micro_scalars */
    address kd;      /* [tokens] f32: the divergence at temperature, 0 where masked */
    address ce;      /* [tokens] f32: cross entropy at temperature 1, 0 where masked */
    uint32_t tokens;
    uint32_t vocab;
    float alpha;
    float temperature;
    float beta; /* weight of the teacher in the mixture, between 0 and 1 */
    uint32_t reserved;
} head_jsd_params;

typedef struct head_ce_params {
    address logits;  /* [tokens, vocab], replaced by their gradient */
    address targets; /* [tokens] u32, MASKED_TOKEN counts nowhere */
    address micro;   /* micro_scalars */
    address ce;      /* [tokens] f32: cross entropy, 0 where masked */
    uint32_t tokens;
    uint32_t vocab;
} head_ce_params;

typedef struct head_nll_params {
    address logits;  /* [tokens, vocab] */
    address targets; /* [tokens] u32 */
    address nll;     /* [tokens] f32, 0 where masked */
    uint32_t tokens;
    uint32_t vocab;
} head_nll_params;

typedef struct head_compare_params {
    address reference;     /* [tokens, vocab] logits that others are compared with */
    address logits;        /* [tokens, vocab] */
    address targets;       /* [tokens] u32 */
    address kl;            /* [tokens] f32: KL(reference || logits), 0 where masked */
    address agrees;        /* [tokens] f32: 1 where both have their largest logit at the same token, 0 elsewhere and where masked */
    address reference_nll; /* [tokens] f32, 0 where masked */
    address nll;           /* [tokens] f32, 0 where masked */
    uint32_t tokens;
    uint32_t vocab;
} head_compare_params;

typedef struct head_metrics_params {
    address kd;      /* [tokens] f32; 0 where nobody teaches */
    address ce;      /* [tokens] f32 */
    address micro;   /* micro_scalars */
    address metrics; /* step_metrics: kd_loss and ce_loss, set in the first micro-batch, added to later */
    uint32_t tokens;
    uint32_t reserved;
} head_metrics_params;

#endif
