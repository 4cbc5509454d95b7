/* Values the host sends to, and reads from, a replayed step. */
#ifndef PRECAST_STEP_H
#define PRECAST_STEP_H
#include "types.h"

/* A target with this id counts nowhere: no loss, no gradient. */
#define MASKED_TOKEN 0xFFFFFFFFu

/// One micro-batch.
/// operand: u32, Micro
typedef struct micro_scalars {
    float loss_scale;    ///< 1 / (counted tokens over all micro-batches of the step)
    uint32_t accumulate; ///< 0 in the first micro-batch of a step: gradients are overwritten, not added to
} micro_scalars;

/// One optimizer update.
/// operand: u32, Update
typedef struct update_scalars {
    float lr;
    float bias_correction1; ///< 1 - beta1^step
    float bias_correction2; ///< 1 - beta2^step
    uint32_t reserved;
} update_scalars;

/// Metrics of a step.
/// operand: f32, Metrics
typedef struct step_metrics {
    float kd_loss;    ///< mean over counted tokens, nats, without T^2
    float ce_loss;    ///< mean over counted tokens, nats
    float grad_norm;  ///< L2 norm over all gradients, before clipping
    float clip_scale; ///< what gradients are multiplied by
    uint32_t skipped; ///< 1: the norm was not finite and the weights were left alone
    uint32_t reserved;
} step_metrics;

#endif
