#ifndef PRECAST_ADAMW_H
#define PRECAST_ADAMW_H
#include "step.h"

typedef struct adamw_params {
    address grad;    /* [n] f32 */
    address update;  /* update_scalars */
    address metrics; /* step_metrics: clip_scale, skipped */
    address master;  /* [n] f32 */
    address m;       /* [n] f32 */
    address v;       /* [n] f32 */
    address weights; /* [n] bf16 copy of master, with w=bf16 */
    uint64_t n;
    uint64_t decayed; /* the first so many elements decay: matrices lie before vectors */
    float beta1;
    float beta2;
    float eps;
    float weight_decay;
} adamw_params;

#endif
