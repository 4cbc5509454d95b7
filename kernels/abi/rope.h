#ifndef PRECAST_ROPE_H
#define PRECAST_ROPE_H
#include "types.h"

typedef struct rope_params {
    address x;   /* [tokens, row_stride]: heads * d rotated in place, the rest untouched */
    address cos; /* [seq_len, d / 2] f32 */
    address sin; /* [seq_len, d / 2] f32 */
    uint32_t tokens;
    uint32_t seq_len;
    uint32_t heads; /* query heads and key heads together: they are adjacent */
    uint32_t row_stride;
} rope_params;

#endif
