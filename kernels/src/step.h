/* Values the host sends to, and reads from, a replayed step. */
#ifndef PRECAST_STEP_H
#define PRECAST_STEP_H
#include "types.h"

/* A target with this id counts nowhere: no loss, no gradient. */
#define MASKED_TOKEN 0xFFFFFFFFu

/// One micro-batch.
/// operand: u32
typedef struct micro_scalars {
    float loss_scale;    ///< uniform(0.1, 1.0): 1 / (counted tokens over all micro-batches of the step)
    uint32_t accumulate; ///< below(2): 0 in the first micro-batch of a step: gradients are overwritten, not added to
} micro_scalars;

/// One optimizer update.
/// operand: u32
typedef struct update_scalars {
    float lr;               ///< 1e-3
    float bias_correction1; ///< uniform(0.1, 1.0): 1 - beta1^step
    float bias_correction2; ///< uniform(0.1, 1.0): 1 - beta2^step
    uint32_t step;          ///< below(1000000): from 1
} update_scalars;

/// Metrics of a step.
/// operand: f32
typedef struct step_metrics {
    float kd_loss;    ///< 1.0: mean over counted tokens, nats, without T^2
    float ce_loss;    ///< 2.0: mean over counted tokens, nats
    float grad_norm;  ///< 3.0: L2 norm over all gradients, before clipping
    float clip_scale; ///< uniform(0.1, 1.0): what gradients are multiplied by
    uint32_t skipped; ///< 0: 1 if the norm was not finite and the weights were left alone
    uint32_t reserved;
} step_metrics;

#endif
