#ifndef PRECAST_SCALE_H
#define PRECAST_SCALE_H
#include "types.h"

/// scale { residual: bool, x: Dtype }: Multiplies elements by a factor, and adds a residual stream if `residual`.
typedef struct scale_params {
    address x;        ///< [n] x, read
    address residual; ///< [n] x, read if residual
    address y;        ///< [n] x, write
    uint64_t n;       ///< elements
    float factor;     ///< of `x`
    uint32_t reserved;
} scale_params;

#endif
