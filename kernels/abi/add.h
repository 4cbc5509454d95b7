#ifndef PRECAST_ADD_H
#define PRECAST_ADD_H
#include "step.h"

typedef struct add_params {
    address x; /* [n] f32 */
    address y; /* [n] f32, added to */
    uint64_t n;
} add_params;

#endif
