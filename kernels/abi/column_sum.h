#ifndef PRECAST_COLUMN_SUM_H
#define PRECAST_COLUMN_SUM_H
#include "step.h"

typedef struct column_sum_partial_params {
    address x;       /* [rows, n] */
    address partial; /* [ceil(rows / group), n] f32 */
    uint32_t rows;
    uint32_t n;
    uint32_t group; /* rows of x that share one partial */
    uint32_t reserved;
} column_sum_partial_params;

typedef struct column_sum_finish_params {
    address partial; /* [rows, n] f32 */
    address micro;   /* micro_scalars */
    address grad;    /* [n] f32 */
    uint32_t rows;
    uint32_t n;
} column_sum_finish_params;

#endif
