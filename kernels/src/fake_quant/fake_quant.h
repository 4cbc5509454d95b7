#ifndef PRECAST_FAKE_QUANT_H
#define PRECAST_FAKE_QUANT_H
#include "types.h"

/// Candidates of a scale on either side: ranges that are up to 7/8 of a step longer or shorter.
#define SCALE_CANDIDATES 7
/// Elements that share a scale.
#define SCALED_ELEMS 32
/// Elements of Q6_K that share a scale.
#define SCALED_ELEMS_Q6_K 16

/// fake_quant { w: Block, x: Dtype }: Rounds a dense matrix to the values that it has in blocks.
typedef struct fake_quant_params {
    address master; ///< [n] f32, read
    address x;      ///< [n] x, write
    uint64_t n;     ///< elements, whole blocks
} fake_quant_params;

#endif
