#ifndef PRECAST_CAST_H
#define PRECAST_CAST_H
#include "step.h"

typedef struct cast_params {
    address x; /* [n] */
    address y; /* [n] */
    uint64_t n;
} cast_params;

#endif
