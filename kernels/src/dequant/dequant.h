#ifndef PRECAST_DEQUANT_H
#define PRECAST_DEQUANT_H
#include "types.h"

/// dequant { w: Block, x: Dtype }: Makes blocks dense.
typedef struct dequant_params {
    address w;  ///< [n] w, read
    address x;  ///< [n] x, write
    uint64_t n; ///< elements, whole blocks
} dequant_params;

#endif
