#ifndef PRECAST_GRAD_DISTANCE_H
#define PRECAST_GRAD_DISTANCE_H
#include "types.h"

typedef struct grad_distance_partial_params {
    address a;       /* [n] f32 */
    address b;       /* [n] f32 */
    address partial; /* [3, ceil(n / group)] f32: sums of a b, of a^2, of b^2 */
    uint64_t n;
    uint32_t group; /* elements that share one partial */
    uint32_t reserved;
} grad_distance_partial_params;

#endif
