#ifndef PRECAST_FILL_H
#define PRECAST_FILL_H
#include "step.h"

/// fill { first: bool }: Sets elements; with `first`, in the first micro-batch only.
typedef struct fill_params {
    address micro; ///< micro_scalars, read if first
    address y;     ///< [n] f32, update if first, write if !first
    uint64_t n;    ///< elements
    float value;
    uint32_t reserved;
} fill_params;

#endif
