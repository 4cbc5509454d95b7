#ifndef PRECAST_COLUMN_SUM_H
#define PRECAST_COLUMN_SUM_H
#include "step.h"

/// column_sum.partial { x: Dtype }: Sums each column over groups of rows.
typedef struct column_sum_partial_params {
    address x;       ///< [rows, n] x, read
    address partial; ///< [ceil(rows / group), n] f32, write
    uint32_t rows;
    uint32_t n;
    uint32_t group; ///< rows of `x` that share one partial sum
    uint32_t reserved;
} column_sum_partial_params;

/// column_sum.finish {}: Adds the groups up into a gradient.
typedef struct column_sum_finish_params {
    address partial; ///< [rows, n] f32, read
    address micro;   ///< micro_scalars, read
    address grad;    ///< [n] f32, update
    uint32_t rows;
    uint32_t n;
} column_sum_finish_params;

#endif
