#ifndef PRECAST_GRAD_DISTANCE_H
#define PRECAST_GRAD_DISTANCE_H
#include "types.h"

/// grad_distance.partial {}: Dot products of groups of elements.
typedef struct grad_distance_partial_params {
    address a;       ///< [n] f32, read
    address b;       ///< [n] f32, read
    address partial; ///< [3, ceil(n / group)] f32, write: sums of a b, of a^2, of b^2
    uint64_t n;      ///< elements
    uint32_t group;  ///< elements that share one partial sum
    uint32_t reserved;
} grad_distance_partial_params;

#endif
