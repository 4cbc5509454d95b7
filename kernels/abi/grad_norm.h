#ifndef PRECAST_GRAD_NORM_H
#define PRECAST_GRAD_NORM_H
#include "step.h"

typedef struct grad_norm_partial_params {
    address grad;    /* [n] f32 */
    address partial; /* [ceil(n / group)] f32 sums of squares */
    uint64_t n;
    uint32_t group; /* elements that share one partial */
    uint32_t reserved;
} grad_norm_partial_params;

typedef struct grad_norm_finish_params {
    address partial; /* [count] f32 */
    address metrics; /* step_metrics: grad_norm, clip_scale, skipped */
    uint32_t count;
    float clip; /* largest norm allowed; 0 for none */
} grad_norm_finish_params;

#endif
