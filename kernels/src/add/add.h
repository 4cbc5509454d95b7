#ifndef PRECAST_ADD_H
#define PRECAST_ADD_H
#include "step.h"

/// add {}: Adds elements.
typedef struct add_params {
    address x;  ///< [n] f32, read
    address y;  ///< [n] f32, update
    uint64_t n; ///< elements
} add_params;

#endif
