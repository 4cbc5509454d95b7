#ifndef PRECAST_CAST_H
#define PRECAST_CAST_H
#include "step.h"

/// cast { from: Dtype, to: Dtype }: Casts elements, rounding to nearest even.
typedef struct cast_params {
    address x;  ///< [n] from, read
    address y;  ///< [n] to, write
    uint64_t n; ///< elements
} cast_params;

#endif
