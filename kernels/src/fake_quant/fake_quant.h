#ifndef PRECAST_FAKE_QUANT_H
#define PRECAST_FAKE_QUANT_H
#include "types.h"

/// fake_quant { w: Block, x: Dtype }: Rounds a dense matrix to the values that it has in blocks.
typedef struct fake_quant_params {
    address master; ///< [n] f32, read
    address x;      ///< [n] x, write
    uint64_t n;     ///< elements, whole blocks
} fake_quant_params;

#endif
