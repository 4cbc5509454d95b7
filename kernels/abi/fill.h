#ifndef PRECAST_FILL_H
#define PRECAST_FILL_H
#include "step.h"

typedef struct fill_params {
    address micro; /* micro_scalars, when fill is for the first micro-batch only */
    address y;     /* [n] f32 */
    uint64_t n;
    float value;
    uint32_t reserved;
} fill_params;

#endif
