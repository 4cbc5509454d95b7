#ifndef PRECAST_ADAMW_H
#define PRECAST_ADAMW_H
#include "step.h"

/// adamw.update { moments: Moments, w: Dtype }: Updates the master weights; with `w=bf16` also writes the working copy.
typedef struct adamw_params {
    address grad;     ///< [n] f32, read
    address update;   ///< update_scalars, read
    address metrics;  ///< step_metrics, read: `clip_scale`, `skipped`
    address master;   ///< [n] f32, update
    address m;        ///< [n] moments.dtype(), update
    address v;        ///< [n] moments.dtype(), update, uniform(0.0, 1.0)
    address weights;  ///< [n] bf16, update if w == bf16: copy of `master`
    uint64_t n;       ///< elements
    uint64_t decayed; ///< elements that decay, the first ones: matrices lie before vectors
    float beta1;
    float beta2;
    float eps;
    float weight_decay;
#ifdef KEY_MOMENTS
    uint64_t first; ///< if moments.are_rounded(): index of the first element in all that trains
#endif
} adamw_params;

#endif
