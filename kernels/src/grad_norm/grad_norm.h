#ifndef PRECAST_GRAD_NORM_H
#define PRECAST_GRAD_NORM_H
#include "step.h"

/// grad_norm.partial {}: Sums squares of groups of elements.
typedef struct grad_norm_partial_params {
    address grad;    ///< [n] f32, read
    address partial; ///< [ceil(n / group)] f32, write
    uint64_t n;      ///< elements
    uint32_t group;  ///< elements that share one partial sum
    uint32_t reserved;
} grad_norm_partial_params;

/// grad_norm.finish {}: Computes norm and clip, and checks that the norm is finite.
typedef struct grad_norm_finish_params {
    address partial; ///< [count] f32, read, uniform(0.0, 1.0)
    address metrics; ///< step_metrics, update: `grad_norm`, `clip_scale`, `skipped`
    uint32_t count;
    float clip; ///< largest norm allowed; 0 for none
} grad_norm_finish_params;

#endif
